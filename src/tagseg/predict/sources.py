"""Which images are meant: files, folders, patterns, zips and their members, or images already in memory."""

import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tagseg.data.files import FileIndex, FileRef
from tagseg.data.images import IMAGE_SUFFIXES, Pixels, apply_exif_rotation, decode, strip_image_suffix, to_rgb
from tagseg.errors import DataError

InMemory = Image.Image | NDArray[np.generic] | Tensor


@dataclass(frozen=True)
class ImageFile:
    """An image by the name that its results will have, and its file."""

    name: str
    file: FileRef

    @property
    def path(self) -> str:
        """Where it lies; a member of a zip as `photos.zip:cats/1.jpg`."""
        return str(self.file)

    def read(self) -> Pixels:
        """The image as RGB, [H, W, 3]."""
        return decode(self.file.read(), str(self.file))


@dataclass(frozen=True)
class MemoryImage:
    """An image that is no file."""

    name: str
    image: InMemory
    path: str | None = None  # it has none

    def read(self) -> Pixels:
        """The image as RGB, [H, W, 3]."""
        if isinstance(self.image, Image.Image):
            return np.array(to_rgb(apply_exif_rotation(self.image.copy())))
        if isinstance(self.image, Tensor):
            values = self.image.detach().cpu()
            return _array_to_rgb((values.movedim(0, -1) if values.dim() == 3 else values).numpy(), "[3, H, W]")
        return _array_to_rgb(self.image, "[H, W, 3]")


ImageSource = ImageFile | MemoryImage


def as_sources(images: str | Path | InMemory | Iterable[str | Path | InMemory]) -> list[ImageSource]:
    """Images of all kinds, mixed, as sources to read one by one: each file once, in the arguments' order.

    An image is named by its path below the folder or zip that was given, without its ending.

    Args:
        images: files, folders (with all folders in them), zips, members of zips as `photos.zip:cats/1.jpg`, patterns
            such as `photos/*.jpg`, and images in memory.
    """
    if isinstance(images, str | Path | Image.Image | np.ndarray | Tensor):
        images = [images]
    sources: dict[FileRef | int, ImageSource] = {}
    for image in images:
        if isinstance(image, str | Path):
            for found in _expand(Path(image).expanduser()):
                sources.setdefault(found.file, found)
        elif isinstance(image, Image.Image | np.ndarray | Tensor):
            sources[len(sources)] = MemoryImage(f"image-{len(sources) + 1:04d}", image)
        else:
            raise ValueError(f"an image is a path, a PIL image, a numpy array or a tensor, got {type(image).__name__}")
    if not sources:
        raise DataError("no images were named; give files, folders, zips or patterns such as photos/*.jpg")
    return list(sources.values())


def _expand(path: Path) -> list[ImageFile]:
    if path.is_dir():
        return _all_in(path, "folder")
    if path.is_file():
        return _all_in(path, "zip") if zipfile.is_zipfile(path) else [_one(FileRef(path), path.name)]
    zip_path, _, member = str(path).rpartition(":")
    if member and zipfile.is_zipfile(zip_path):
        file = FileIndex(Path(zip_path)).find(member)
        if file is None:
            raise DataError(f"{zip_path}: holds no image {member}; check its name")
        return [_one(file, member)]
    if has_magic(str(path)):
        matches = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        images = [match for match in matches if match.is_file() and match.suffix.lower() in IMAGE_SUFFIXES]
        if not images:
            raise DataError(f"{path}: no image matches this pattern; {_endings()}")
        return [_one(FileRef(match), match.name) for match in images]
    raise DataError(f"{path}: does not exist; name an image, a folder, a zip or a pattern such as photos/*.jpg")


def _all_in(path: Path, kind: str) -> list[ImageFile]:
    files: Sequence[tuple[PurePosixPath, FileRef]] = list(FileIndex(path).files.items())
    if not files:
        raise DataError(f"{path}: this {kind} holds no images; {_endings()}")
    return [_one(file, str(name)) for name, file in files]


def _one(file: FileRef, name: str) -> ImageFile:
    # Results are written below a folder by this name, so it must not lead out of it.
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("..", "/")]
    return ImageFile(str(strip_image_suffix(PurePosixPath(*parts))), file)


def _endings() -> str:
    return f"images end in {', '.join(sorted(IMAGE_SUFFIXES))}"


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
