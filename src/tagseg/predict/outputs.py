"""The files that are written for an image: which ones, how they are called, and how they look."""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from tagseg.predict.prediction import Prediction
from tagseg.predict.render import DEFAULT_ALPHA, check_alpha

Format = Literal["png", "parquet"]
FORMATS: tuple[Format, ...] = ("png", "parquet")
_MAX_JPEG_SIDE = 65_500  # longer overlays are reduced


@dataclass(frozen=True)
class OutputFiles:
    """Files to write for each image: the mask, NAME_mask.png, and others.

    Attributes:
        overlay: Write NAME_overlay.jpg, of exactly the image's size up to 67 megapixels, and one legend.png.
        alpha: Opacity of the overlay's colors, from 0 to 1.
        legend: Add a legend to the right of each overlay, in place of legend.png.
        confidence: Write NAME_confidence.png.
    """

    overlay: bool = True
    alpha: float = DEFAULT_ALPHA
    legend: bool = False
    confidence: bool = False

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    @property
    def needs_legend_file(self) -> bool:
        """Whether the overlays need a legend.png."""
        return self.overlay and not self.legend

    def names(self, name: str) -> dict[str, str]:
        """Files of an image by kind, relative to the folder."""
        is_written = {"mask": True, "overlay": self.overlay, "confidence": self.confidence}
        return {kind: file for kind, file in output_files(name).items() if is_written[kind]}

    def save(self, kind: str, prediction: Prediction, file: Path | BinaryIO) -> None:
        """Draw the file of a kind and save it, whatever the suffix of its path."""
        if kind == "mask":
            prediction.mask_image().save(file, "PNG")
        elif kind == "confidence":
            prediction.confidence_image().save(file, "PNG")
        else:
            overlay = prediction.overlay(alpha=self.alpha, legend=self.legend)
            overlay.thumbnail((_MAX_JPEG_SIDE, _MAX_JPEG_SIDE))
            overlay.save(file, "JPEG", quality=90)


def output_files(name: str) -> dict[str, str]:
    """All files that an image can have, by kind, relative to the folder."""
    return {"mask": f"{name}_mask.png", "overlay": f"{name}_overlay.jpg", "confidence": f"{name}_confidence.png"}
