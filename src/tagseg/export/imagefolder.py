"""Hugging Face's imagefolder with masks.

id2label.json                  names of the masks' values
SPLIT/metadata.jsonl           image, mask and classes of each image
SPLIT/ID.jpg                   images
SPLIT/masks/ID.png             masks: gray, 255 is ignored
"""

from pathlib import Path
from typing import Any

from PIL import Image

from tagseg.data.annotations import IGNORED_NAME
from tagseg.data.cvat import BACKGROUND_NAME
from tagseg.data.imagefolder import CLASS_NAMES, IMAGE_KEYS, MASK_KEYS, METADATA
from tagseg.export.mask_writer import ExportedImage, ExportOptions, MaskWriter, to_json, write_new

_MASKS = "masks"


class HuggingFaceWriter(MaskWriter):
    """Writer of an imagefolder."""

    needs_images = True

    def __init__(self, options: ExportOptions) -> None:
        super().__init__(options)
        self._lines: list[str] = []

    @property
    def image_folder(self) -> Path:
        return self.options.out / (self.options.split or "train")

    def encode(self, image: ExportedImage) -> dict[str, Any]:
        mask = f"{_MASKS}/{image.name}.png"
        path = self.image_folder / mask
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            Image.fromarray(image.mask).save(file, "PNG")
        names = [self.options.name_of(value) for value in image.values]
        labels = [name for name in names if name != IGNORED_NAME]
        return {IMAGE_KEYS[0]: image.file_name, MASK_KEYS[0]: mask, "labels": labels}

    def add(self, encoded: dict[str, Any]) -> None:
        self._lines.append(to_json(encoded) + "\n")

    def finish(self) -> None:
        names = {str(value): name for value, name in enumerate((BACKGROUND_NAME, *self.options.classes))}
        write_new(self.options.out / CLASS_NAMES, to_json(names) + "\n")
        write_new(self.image_folder / METADATA, "".join(self._lines))
