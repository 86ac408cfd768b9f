"""Images to predict: files, folders, glob patterns, zips and tars and their members, or images in memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tagseg.data.arrow import ARROW_SUFFIXES, arrow_images
from tagseg.data.files import FileIndex, FileRef, expand_home, is_archive
from tagseg.data.images import IMAGE_SUFFIXES, Pixels, apply_exif_rotation, decode, strip_image_suffix, to_rgb
from tagseg.errors import DataError

MemoryImage = Image.Image | NDArray[np.generic] | Tensor | bytes
MemoryInput = MemoryImage | BinaryIO
ImageInput = str | Path | MemoryInput
_IN_MEMORY = (Image.Image, np.ndarray, Tensor, bytes)


@dataclass(frozen=True)
class FileSource:
    """An image file, with the name that its results get."""

    name: str
    file: FileRef

    @property
    def path(self) -> str:
        """Path of the file; a member of a zip as `photos.zip:cats/1.jpg`."""
        return str(self.file)

    def read(self) -> Pixels:
        """Decode to RGB, [H, W, 3]."""
        return decode(self.file.read(), str(self.file))


@dataclass(frozen=True)
class MemorySource:
    """An image in memory."""

    name: str
    image: MemoryImage
    path: None = None

    def read(self) -> Pixels:
        """Convert to RGB, [H, W, 3]."""
        if isinstance(self.image, Image.Image):
            return np.array(to_rgb(apply_exif_rotation(self.image.copy())))
        if isinstance(self.image, Tensor):
            values = self.image.detach().cpu()
            values = values.float() if values.is_floating_point() else values  # NumPy has no bfloat16
            return _array_to_rgb((values.movedim(0, -1) if values.dim() == 3 else values).numpy(), "[3, H, W]")
        if isinstance(self.image, np.ndarray):
            return _array_to_rgb(self.image, "[H, W, 3]")
        return decode(self.image, self.name)


ImageSource = FileSource | MemorySource


def find_sources(images: ImageInput | Iterable[ImageInput]) -> list[ImageSource]:
    """List images of all kinds, in the order of the arguments.

    An image is named by its path below the folder or zip that was given, without its suffix.

    Args:
        images: Files, folders (searched recursively), zips and tars, their members as `photos.zip:cats/1.jpg`, glob
            patterns such as `photos/*.jpg`, Arrow and Parquet files, and images in memory. File objects are read here:
            a source may be read again.
    """
    is_single = isinstance(images, str | Path) or _is_in_memory(images)
    inputs = cast("Iterable[ImageInput]", [images] if is_single else images)
    sources: list[ImageSource] = []
    for image in inputs:
        if isinstance(image, str | Path):
            sources += _expand(expand_home(image))
        elif _is_in_memory(image):
            content = image if isinstance(image, _IN_MEMORY) else image.read()
            sources.append(MemorySource(f"image-{len(sources) + 1:04d}", content))
        else:
            raise DataError(
                "an image is a path, PIL image, array, tensor, bytes or file object, got " + type(image).__name__
            )
    if not sources:
        raise DataError("no images were given", "give files, folders, zips or patterns such as photos/*.jpg")
    return sources


def _is_in_memory(image: object) -> TypeGuard[MemoryInput]:
    return isinstance(image, _IN_MEMORY) or hasattr(image, "read")


def _expand(path: Path) -> list[FileSource]:
    if path.is_dir():
        return _all_in(path, "folder")
    if path.is_file() and path.suffix.lower() in ARROW_SUFFIXES:
        return [_file_source(file, name) for name, file in arrow_images(path)]
    if path.is_file():
        return _all_in(path, "archive") if is_archive(path) else [_file_source(FileRef(path), path.name)]
    archive, _, member = str(path).rpartition(":")
    if member and is_archive(archive):
        file = FileIndex(Path(archive)).find(member)
        if file is None:
            raise DataError(f"{archive}: has no image {member}", "check its name")
        return [_file_source(file, member)]
    if has_magic(str(path)):
        try:
            matches = sorted(set(Path(path.anchor).glob(str(path.relative_to(path.anchor)))))
        except ValueError as error:
            raise DataError(f"{path}: is not a pattern ({error})", "write for example photos/**/*.jpg") from error
        files = [match for match in matches if match.is_file() and match.suffix.lower() in IMAGE_SUFFIXES]
        if not files:
            raise DataError(f"{path}: no image matches this pattern", _suffix_advice())
        return [_file_source(FileRef(file), file.name) for file in files]
    raise DataError(f"{path}: does not exist", "name an image, a folder, a zip or a pattern such as photos/*.jpg")


def _all_in(path: Path, kind: str) -> list[FileSource]:
    files = FileIndex(path).files
    if not files:
        raise DataError(f"{path}: this {kind} has no images", _suffix_advice())
    return [_file_source(file, str(name)) for name, file in files.items()]


def _file_source(file: FileRef, name: str) -> FileSource:
    # Results are written below a folder by this name, so it must not lead out of it.
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("..", "/")]
    return FileSource(str(strip_image_suffix(PurePosixPath(*parts))), file)


def _suffix_advice() -> str:
    return f"image files end in {', '.join(sorted(IMAGE_SUFFIXES))}"


def _array_to_rgb(values: NDArray[np.generic], expected: str) -> Pixels:
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim != 3 or values.shape[2] not in (1, 3, 4) or 0 in values.shape:
        raise ValueError(f"an image must be {expected} with 1, 3 or 4 channels, or [H, W], got {list(values.shape)}")
    if np.issubdtype(values.dtype, np.floating):
        if not (values.min() >= 0 and values.max() <= 1):  # false for NaN too
            raise ValueError(f"a floating-point image must be in [0, 1], got {values.min()} to {values.max()}")
        values = np.asarray(values.astype(np.float64) * 255 + 0.5).astype(np.uint8)
    if values.dtype != np.uint8:
        raise ValueError(f"an image must be uint8, or floating point in [0, 1], got {values.dtype}")
    return np.array(to_rgb(Image.fromarray(values.squeeze(2) if values.shape[2] == 1 else values)))
