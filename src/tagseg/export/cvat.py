"""CVAT's format "Segmentation mask 1.1".

labelmap.txt                              name:red,green,blue:: for each class
ImageSets/Segmentation/default.txt        image IDs
SegmentationClass/ID.png                  masks in the colors of the classes
SegmentationObject/ID.png                 the same regions, one color for each mask that CVAT makes of them
JPEGImages/ID.jpg                         images
cvat_labels.json                          the labels that the task needs, for the tab "Raw" of CVAT

Ignored pixels have the color of the label "ignored", which is always declared.
"""

from pathlib import Path

import numpy as np

from tagseg.data.annotations import IGNORED_NAME
from tagseg.data.cvat import BACKGROUND_NAME, LABEL_MAP
from tagseg.data.masks import IGNORE_LABEL, Mask
from tagseg.errors import ConfigError
from tagseg.export.mask_writer import ExportedImage, ExportOptions, MaskWriter, to_json, write_new
from tagseg.predict.render import mask_image, palette


class CvatWriter(MaskWriter):
    """Writer of CVAT's files."""

    def __init__(self, options: ExportOptions) -> None:
        super().__init__(options)
        for name in options.classes:
            if ":" in name or name.startswith("#") or name.strip() != name or name == BACKGROUND_NAME:
                raise ConfigError(
                    f"the class {name!r} cannot be listed in {LABEL_MAP}: names have no colon, no # at the start, no "
                    f"space at the ends, and are not {BACKGROUND_NAME!r}",
                    "rename it with {classes}",
                )
        self._image_ids: list[str] = []

    @property
    def image_folder(self) -> Path:
        return self.options.out / "JPEGImages"

    def encode(self, image: ExportedImage) -> str:
        objects = np.zeros_like(image.mask)
        for number, value in enumerate(image.values, start=1):
            objects[image.mask == value] = number
        for folder, mask in (("SegmentationClass", image.mask), ("SegmentationObject", objects)):
            self._save(mask, self.options.out / folder / f"{image.name}.png")
        return image.name

    def add(self, encoded: str) -> None:
        self._image_ids.append(encoded)

    def finish(self) -> None:
        out, colors = self.options.out, palette(256).tolist()
        lists = out / "ImageSets" / "Segmentation" / f"{self.options.split or 'default'}.txt"
        write_new(lists, "".join(f"{image_id}\n" for image_id in self._image_ids))
        names = {**dict(enumerate(self.options.classes, start=1)), IGNORE_LABEL: IGNORED_NAME}
        labels = [
            {"name": name, "color": "#{:02x}{:02x}{:02x}".format(*colors[value]), "attributes": []}
            for value, name in names.items()
        ]
        write_new(out / "cvat_labels.json", to_json(labels) + "\n")
        lines = [
            f"{name}:{','.join(map(str, colors[value]))}::\n" for value, name in {0: BACKGROUND_NAME, **names}.items()
        ]
        write_new(out / LABEL_MAP, "# label:color_rgb:parts:actions\n" + "".join(lines))

    def _save(self, mask: Mask, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            mask_image(mask).save(file, "PNG")
