"""Images to predict: files, folders, patterns, zips and tars, Arrow files, URLs, videos, or images in memory."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeGuard, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tagseg.data.arrow import ARROW_SUFFIXES, arrow_images
from tagseg.data.files import TAR_SUFFIX, FileIndex, FileRef, expand_home, is_archive
from tagseg.data.images import (
    HEIF_SUFFIXES,
    IMAGE_SUFFIXES,
    Pixels,
    apply_exif_rotation,
    decode,
    decode_large,
    strip_image_suffix,
    to_rgb,
)
from tagseg.data.limits import hold_file, read_stream
from tagseg.data.urls import UrlRef, check_url, is_url, url_name
from tagseg.errors import DataError, printable
from tagseg.predict.folder import predictions_among
from tagseg.predict.resize import Shape
from tagseg.predict.settings import WorkingSize
from tagseg.predict.video import VIDEO_SUFFIXES, FrameSource, VideoSource, open_video, why_no_video

MemoryImage = Image.Image | NDArray[np.generic] | Tensor | bytes
MemoryInput = MemoryImage | BinaryIO
ImageInput = str | Path | MemoryInput
Decoded = TypeVar("Decoded")
_IN_MEMORY = (Image.Image, np.ndarray, Tensor, bytes)
_STDIN = "-"
_MAX_NAME_BYTES = 200  # file systems allow 255
# Files that a user may take for images but that are not read from a folder.
_UNREAD_SUFFIXES = frozenset(
    {".arw", ".cr2", ".cr3", ".dng", ".eps", ".exr", ".hdr", ".ico", ".jp2", ".jxl", ".nef", ".orf", ".pgm", ".ppm"}
    | {".psd", ".raf", ".raw", ".rw2", ".svg", ".tga", ".xcf"}
)
_LISTED_SUFFIXES = IMAGE_SUFFIXES | HEIF_SUFFIXES | VIDEO_SUFFIXES | _UNREAD_SUFFIXES


@dataclass(frozen=True)
class FileSource:
    """An image file or URL, with the name that its results get."""

    name: str
    file: FileRef | UrlRef

    @property
    def path(self) -> str:
        """Path of the file; a member of a zip as `photos.zip:cats/1.jpg`."""
        return printable(str(self.file))

    def read(self) -> Pixels:
        """Decode to RGB, [H, W, 3]."""
        return self._decode(decode)

    def read_large(self, size: int) -> tuple[Pixels, Shape]:
        """Decode for a working size: a very large image is reduced, see `decode_large`; and its own shape."""
        return self._decode(partial(decode_large, min_side=size))

    def _decode(self, decoder: Callable[[bytes, str], Decoded]) -> Decoded:
        with hold_file(0 if isinstance(self.file, UrlRef) else self.file.size()):
            return decoder(self.file.read(), str(self.file))


@dataclass(frozen=True)
class MemorySource:
    """An image in memory."""

    name: str
    image: MemoryImage
    path: str | None = None

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


ImageSource = FileSource | MemorySource | FrameSource


@dataclass
class Sources:
    """Images that were found.

    Attributes:
        images: Images and videos, in the order of the arguments; no two have the same name.
        left_out: Files of folders, zips and patterns that look like images but are not read, by what to do about them.
    """

    images: list[ImageSource | VideoSource] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)


def read_source(source: ImageSource, size: WorkingSize) -> tuple[Pixels, Shape]:
    """Read an image for a working size: its pixels, of a very large file at reduced size, and its own shape."""
    if isinstance(source, FileSource) and isinstance(size, int):
        return source.read_large(size)
    pixels = source.read()
    return pixels, (pixels.shape[0], pixels.shape[1])


def find_sources(images: ImageInput | Iterable[ImageInput], *, every: float | None = None) -> Sources:
    """List images of all kinds.

    An image is named by its path below the folder or zip that was given, without its suffix; the second of a name gets
    NAME-2. Those of the shards that a pattern matches are named SHARD/NAME.

    Args:
        images: Files, folders (searched recursively), zips and tars, their members as `photos.zip:cats/1.jpg`, glob
            patterns such as `photos/*.jpg` or `shards/*.parquet`, Arrow and Parquet files, URLs (http and https), `-`
            for standard input, videos, and images in memory. File objects and standard input are read here: a source
            may be read again.
        every: Seconds between the frames of videos.
    """
    is_single = isinstance(images, str | Path) or _is_in_memory(images)
    inputs = cast("Iterable[ImageInput]", [images] if is_single else images)
    search = _Search(every)
    for image in inputs:
        search.add(image)
    if not search.sources.images:
        raise DataError("no images were given", "give files, folders, zips or patterns such as photos/*.jpg")
    return search.sources


def unused_name(name: str, used: dict[str, int]) -> str:
    """The name, or NAME-2, NAME-3 and so on if it is in `used`, to which it is added with its last number."""
    unused, key = name, name.lower()  # some file systems do not distinguish a.png from A.png
    while unused.lower() in used:
        used[key] += 1
        unused = f"{name}-{used[key]}"
    used[unused.lower()] = 1
    return unused


class _Search:
    """Search for images of which no two get the same name."""

    def __init__(self, every: float | None) -> None:
        self.sources = Sources()
        self._every = every
        self._names: dict[str, int] = {}

    def add(self, image: ImageInput) -> None:
        """Add all images of an argument."""
        if isinstance(image, str) and is_url(image):
            check_url(image)
            self._add(_file_source(UrlRef(image), url_name(image)))
        elif isinstance(image, str) and image == _STDIN:
            self._add(MemorySource("stdin", read_stream(sys.stdin.buffer, "standard input"), _STDIN))
        elif isinstance(image, str | Path):
            self._add_path(expand_home(image))
        elif _is_in_memory(image):
            content = image if isinstance(image, _IN_MEMORY) else read_stream(image, "file object")
            self._add(MemorySource(f"image-{len(self.sources.images) + 1:04d}", content))
        else:
            raise DataError(
                "an image is a path, URL, PIL image, array, tensor, bytes or file object, got " + type(image).__name__
            )

    def _add(self, source: ImageSource | VideoSource) -> None:
        self.sources.images.append(replace(source, name=unused_name(source.name, self._names)))

    def _add_path(self, path: Path) -> None:
        archive, _, member = str(path).rpartition(":")
        if path.is_dir():
            self._add_all(path, _files_in(path), "this folder has no images")
        elif path.is_file() and path.suffix.lower() in ARROW_SUFFIXES:
            for name, file in arrow_images(path):
                self._add_file(file, name)
        elif path.is_file() and is_archive(path):
            self._add_all(path, _files_in(path), "this archive has no images")
        elif path.is_file():
            self._add_file(FileRef(path), path.name)
        elif member and is_archive(archive):
            member_file = FileIndex(Path(archive)).find(member)
            if member_file is None:
                raise DataError(f"{archive}: has no image {member}", "check its name")
            self._add_file(member_file, member)
        elif has_magic(str(path)):
            matches = [match for match in _matches(path) if match.is_file()]
            shards = [match for match in matches if match.suffix.lower() in (*ARROW_SUFFIXES, TAR_SUFFIX)]
            files = {FileRef(match): match.name for match in matches if match not in shards}
            for shard in shards:  # they may number their images separately
                is_tar = shard.suffix.lower() == TAR_SUFFIX
                for name, file in _images_in_tar(shard) if is_tar else arrow_images(shard):
                    self._add_file(file, f"{shard.stem}/{name}")
            if files or not shards:
                self._add_all(path, files, "no image matches this pattern")
        else:
            raise DataError(
                f"{path}: does not exist", "name an image, a folder, a zip, a URL or a pattern such as photos/*.jpg"
            )

    def _add_all(self, path: Path, files: Mapping[FileRef, str], if_none: str) -> None:
        """Add files that can be read, with their names, and list the others that look like images.

        Masks and overlays of earlier predictions are no images to predict.
        """
        count, left_out = len(self.sources.images), dict[str, list[str]]()
        predictions = predictions_among(file.path for file in files if file.member is None)
        for file, name in files.items():
            suffix = PurePosixPath(name).suffix.lower()
            if suffix not in _LISTED_SUFFIXES or file.path in predictions:
                continue
            if reason := self._why_left_out(file, suffix):
                left_out.setdefault(reason, []).append(str(file))
            else:
                self._add_file(file, name)
        if len(self.sources.images) == count:
            advice = _shard_advice(path) or _suffix_advice()
            raise DataError(f"{path}: {if_none}{summarize_left_out(left_out, '; left out: ')}", advice)
        for reason, paths in left_out.items():
            self.sources.left_out.setdefault(reason, []).extend(paths)

    def _add_file(self, file: FileRef, name: str) -> None:
        if file.member is None and file.path.suffix.lower() in VIDEO_SUFFIXES:
            self._add(open_video(safe_name(name), file.path, self._every))
        else:
            self._add(_file_source(file, name))

    def _why_left_out(self, file: FileRef, suffix: str) -> str:
        """Why a file of a folder is not read, and what to do; empty if it is."""
        if suffix in IMAGE_SUFFIXES:
            return ""
        if suffix in HEIF_SUFFIXES:
            return "HEIC needs tagseg[heif]"
        if suffix in VIDEO_SUFFIXES:
            if file.member is not None:
                return "videos in zips are not read; unpack them"
            if self._every is None:
                return "videos need --every SECONDS (every= in Python)"
            return "videos need tagseg[video]" if why_no_video(self._every) else ""
        return f"{suffix} is not read; convert it to JPEG or PNG"


def summarize_left_out(left_out: Mapping[str, list[str]], start: str = "") -> str:
    """How many files were left out and why, on one line, each reason with its first file; empty if none was."""
    parts = [
        f"{len(paths):,} file{'' if len(paths) == 1 else 's, such as'} {paths[0]} ({reason})"
        for reason, paths in left_out.items()
    ]
    return start + ", ".join(parts) if parts else ""


def _is_in_memory(image: object) -> TypeGuard[MemoryInput]:
    return isinstance(image, _IN_MEMORY) or hasattr(image, "read")


def _files_in(path: Path) -> dict[FileRef, str]:
    """Files of a folder or archive that are or look like images, with their names below it."""
    return {file: str(name) for name, file in FileIndex(path, suffixes=_LISTED_SUFFIXES).files.items()}


def _images_in_tar(path: Path) -> Iterator[tuple[str, FileRef]]:
    return ((str(name), file) for name, file in FileIndex(path).files.items())


def _matches(pattern: Path) -> list[Path]:
    try:
        return sorted(set(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))))
    except ValueError as error:
        raise DataError(f"{pattern}: is not a pattern ({error})", "write for example photos/**/*.jpg") from error


def _file_source(file: FileRef | UrlRef, name: str) -> FileSource:
    return FileSource(str(strip_image_suffix(PurePosixPath(safe_name(name, keep_suffix=True)))), file)


def safe_name(name: str, *, keep_suffix: bool = False) -> str:
    """Name by which results are written below a folder: it does not lead out of it, and file systems allow it."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in ("..", "/")]
    path = PurePosixPath(*(_allowed_part(part) for part in parts))
    return str(path if keep_suffix else path.with_suffix(""))


def _allowed_part(part: str) -> str:
    """A part of a name without control characters, and only its end if it is too long for the names of results."""
    text = "".join(char if char.isprintable() else "_" for char in part)
    return text.encode()[-_MAX_NAME_BYTES:].decode(errors="ignore")


def _shard_advice(folder: Path) -> str:
    """How to name the Arrow, Parquet and tar files of a folder, which training reads by the folder; empty if none."""
    for pattern in ("*", "*/*"):  # save_to_disk writes a folder for each split
        for suffix in (*ARROW_SUFFIXES, TAR_SUFFIX):
            if any(folder.glob(pattern + suffix)):
                return f"name its files by a pattern in quotes: 'FOLDER/{pattern}{suffix}'"
    return ""


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
