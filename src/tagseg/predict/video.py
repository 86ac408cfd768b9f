"""Frames of a video, read one by one with OpenCV."""

import os
from collections.abc import Generator
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tagseg.data.images import Pixels
from tagseg.errors import DataError

if TYPE_CHECKING:
    import cv2

VIDEO_SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv"})


@dataclass(frozen=True)
class FrameSource:
    """A frame of a video, decoded.

    Attributes:
        name: Name of the video with the time of the frame, such as clip-000012.500s.
        path: The video with the time, as in clip.mp4#t=12.5.
        image: RGB, [H, W, 3].
    """

    name: str
    path: str
    image: Pixels

    def read(self) -> Pixels:
        """The pixels of the frame."""
        return self.image


@dataclass(frozen=True)
class VideoSource:
    """A video, of which a frame is taken every few seconds.

    Attributes:
        name: Name that the frames' names begin with.
        file: The video.
        every: Seconds between frames.
    """

    name: str
    file: Path
    every: float

    @property
    def path(self) -> str:
        """Path of the video."""
        return str(self.file)

    def frames(self) -> Generator[FrameSource, None, None]:
        """Decode the frames in their order; only one is in memory at a time."""
        import cv2

        capture = self._open()
        try:
            rate = capture.get(cv2.CAP_PROP_FPS) or 1.0
            number, last_step = 0, -1
            while capture.grab():
                # Some containers have no times; then the frame rate gives them.
                time = capture.get(cv2.CAP_PROP_POS_MSEC) / 1000 or number / rate
                number += 1
                step = int(time / self.every + 1e-3)
                if step == last_step:
                    continue
                is_decoded, pixels = capture.retrieve()
                if not is_decoded:
                    continue
                last_step, seconds = step, step * self.every
                image = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)
                yield FrameSource(f"{self.name}-{seconds:010.3f}s", f"{self.file}#t={seconds:.10g}", image)
        finally:
            capture.release()
        if last_step < 0:
            raise DataError(f"{self.file}: has no frame that can be read", "convert the video to MP4, or remove it")

    def estimate_count(self) -> int:
        """Number of frames by the video's own account, which may be a little wrong; 0 if it cannot be read."""
        import cv2

        try:
            capture = self._open()
        except DataError:
            return 0
        length, rate = capture.get(cv2.CAP_PROP_FRAME_COUNT), capture.get(cv2.CAP_PROP_FPS)
        capture.release()
        return max(1, ceil(length / rate / self.every)) if length > 0 and rate > 0 else 1

    def _open(self) -> "cv2.VideoCapture":
        import cv2

        # Our own error names the file.
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
        capture = cv2.VideoCapture(str(self.file))
        if not capture.isOpened():
            raise DataError(f"{self.file}: is not a video that can be read", "convert it to MP4, or remove it")
        return capture


def open_video(name: str, file: Path, every: float | None) -> VideoSource:
    """Source of a video's frames.

    Raises:
        DataError: No time between frames was given, or OpenCV is not installed.
    """
    if reason := why_no_video(every):
        raise DataError(f"{file}: is a video", reason)
    assert every is not None
    if not every > 0:
        raise DataError(f"{file}: the seconds between frames must be more than 0, got {every:g}")
    return VideoSource(name, file, every)


def why_no_video(every: float | None) -> str:
    """What to do before videos can be read; empty if nothing."""
    if every is None:
        return "name the seconds between its frames with {every}"
    return "" if find_spec("cv2") else "install tagseg[video] to read it"
