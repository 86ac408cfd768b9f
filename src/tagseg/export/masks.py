"""Write images with masks in the formats of annotation tools and libraries.

All files are written to OUT.tagseg-part, which becomes OUT when it is complete: OUT is whole or does not exist.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tagseg._files import LOCK_FILE, hold_folder, make_folder, writing
from tagseg._progress import ProgressBar, track
from tagseg.data import DataSource
from tagseg.data.annotations import IGNORED_NAME
from tagseg.data.masks import IGNORE_LABEL, values_in
from tagseg.errors import ConfigError, unknown_name
from tagseg.export.coco import CocoWriter
from tagseg.export.cvat import CvatWriter
from tagseg.export.imagefolder import HuggingFaceWriter
from tagseg.export.label_studio import LabelStudioWriter
from tagseg.export.mask_input import ImageContent, MaskedImage, open_masked_images
from tagseg.export.mask_writer import ExportedImage, ExportOptions, MaskWriter, write_new
from tagseg.export.yolo import YoloWriter
from tagseg.predict.pipeline import read_ahead
from tagseg.predict.sources import safe_name

WRITERS: dict[str, type[MaskWriter]] = {
    "coco": CocoWriter,
    "yolo": YoloWriter,
    "cvat": CvatWriter,
    "label-studio": LabelStudioWriter,
    "hf": HuggingFaceWriter,
}
MaskFormat = Literal["coco", "yolo", "cvat", "label-studio", "hf"]
ImageFiles = Literal["copy", "link", "none"]
_PART_SUFFIX = ".tagseg-part"
_ZIP_SUFFIX = ".zip"


@dataclass(frozen=True)
class MaskExport:
    """What was exported.

    Attributes:
        images: Number of images.
        without_masks: Number of images of the source that have no mask.
        classes: Class names.
    """

    images: int
    without_masks: int
    classes: tuple[str, ...]


def write_masks(
    source: DataSource,
    out: Path,
    *,
    format: str,
    polygons: bool = False,
    image_files: str = "copy",
    image_url: str | None = None,
    progress: bool = False,
) -> MaskExport:
    """Write the images of a source that have a mask.

    Args:
        source: Images with masks, or a folder of predictions.
        out: Folder or zip to write; it must not exist, or be an empty folder.
        format: Name of the format.
        polygons: Write polygons instead of run lengths.
        image_files: Copy the images, link to them, or write none.
        image_url: Start of the images' URLs.
        progress: Show the progress.
    """
    kind = _require_options(format, polygons, image_files, image_url)
    _require_unused(out)
    with ProgressBar("Listing masks", quiet=not progress):
        masked = open_masked_images(source)
    if IGNORED_NAME in masked.classes:
        raise ConfigError(f"the class {IGNORED_NAME!r} has the name of ignored pixels", "rename it with {classes}")
    split = safe_name(source.split, keep_suffix=True) if source.split else None

    with _complete_folder(out) as part:
        writer = kind(ExportOptions(part, masked.classes, split, polygons, image_url))

        def write(image: MaskedImage) -> Any:
            content, mask = image.read(with_image=image_files != "none")
            values = (*values_in(mask), *([IGNORE_LABEL] if (mask == IGNORE_LABEL).any() else []))
            exported = ExportedImage(image.name, image.suffix if content is None else content.suffix, mask, values)
            with writing(out):
                if content is not None:
                    _write_image(content, writer.image_folder / exported.file_name, link=image_files == "link")
                return writer.encode(exported)

        with closing(writer), closing(read_ahead(write, masked.images)) as encoded:
            for entry in track(encoded, "Exporting masks", len(masked.images), quiet=not progress):
                with writing(out):
                    writer.add(entry)
            with writing(out):
                writer.finish()
    return MaskExport(len(masked.images), masked.without_masks, masked.classes)


def _require_options(name: str, polygons: bool, image_files: str, image_url: str | None) -> type[MaskWriter]:
    """Writer of a format that has these options."""
    if name not in WRITERS:
        raise unknown_name("format", name, WRITERS)
    writer = WRITERS[name]
    if polygons and not writer.has_polygons:
        raise ConfigError(f"polygons are a choice of the format coco, not of {name}", "leave the choice out")
    if image_files not in get_args(ImageFiles):
        raise unknown_name("choice of image files", image_files, get_args(ImageFiles))
    if image_files == "none" and writer.needs_images:
        raise ConfigError(f"the format {name} needs image files beside its masks", "copy the images or link to them")
    if image_url is not None and not writer.has_urls:
        raise ConfigError(f"URLs of images are a choice of the format label-studio, not of {name}", "leave it out")
    return writer


def _require_unused(out: Path) -> None:
    """Refuse a place that has something."""
    is_zip = out.suffix.lower() == _ZIP_SUFFIX
    if out.exists() and (is_zip or not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: exists, and is not overwritten", "choose another place with {out}")


@contextmanager
def _complete_folder(out: Path) -> Iterator[Path]:
    """Folder to write to, which becomes `out`, or a zip of this name, at the end; after an error it is removed."""
    part = out.with_name(out.name + _PART_SUFFIX)
    make_folder(out.parent)
    with hold_folder(part):
        try:
            _clear(part)
            content = part / "content"
            content.mkdir()
            yield content
            with writing(out):
                if out.suffix.lower() == _ZIP_SUFFIX:
                    content = Path(shutil.make_archive(str(part / "packed"), "zip", content))
                _require_unused(out)
                if out.is_dir():
                    out.rmdir()  # it is empty
                content.rename(out)
        finally:
            _clear(part)
    with suppress(OSError):  # the lock that a killed process left; otherwise both are gone
        (part / LOCK_FILE).unlink()
        part.rmdir()


def _clear(folder: Path) -> None:
    """Remove what this or a killed process wrote, but not the lock."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif not path.name.startswith(LOCK_FILE):
            path.unlink()


def _write_image(content: ImageContent, path: Path, *, link: bool) -> None:
    if link and content.path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(content.path.resolve())
    else:
        write_new(path, content.data)
