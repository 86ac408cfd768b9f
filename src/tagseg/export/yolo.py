"""Polygons of YOLO.

data.yaml                names of the classes, and the folder of images
images/SPLIT/ID.jpg      images
labels/SPLIT/ID.txt      polygons: the class's number, then x and y of each corner divided by the image's size

Ignored pixels, which YOLO does not know, are polygons of a last class "ignored", if there are such pixels.
"""

from pathlib import Path

from tagseg.data.annotations import IGNORED_NAME
from tagseg.data.masks import IGNORE_LABEL
from tagseg.data.polygons import region_polygons
from tagseg.data.yolo import label_file
from tagseg.export.mask_writer import ExportedImage, MaskWriter, to_json, write_new


class YoloWriter(MaskWriter):
    """Writer of YOLO's files."""

    needs_images = True
    _has_ignored = False

    @property
    def image_folder(self) -> Path:
        return self.options.out / "images" / (self.options.split or "train")

    def encode(self, image: ExportedImage) -> bool:
        lines = []
        height, width = image.mask.shape
        for value in image.values:
            number = len(self.options.classes) if value == IGNORE_LABEL else value - 1
            for polygon in region_polygons(image.mask == value):
                coordinates = (polygon / (width, height)).ravel().tolist()
                lines.append(" ".join([str(number), *(f"{coordinate:.6f}" for coordinate in coordinates)]) + "\n")
        write_new(label_file(self.image_folder / image.file_name), "".join(lines))
        return IGNORE_LABEL in image.values

    def add(self, encoded: bool) -> None:
        self._has_ignored |= encoded

    def finish(self) -> None:
        names = [*self.options.classes, *([IGNORED_NAME] if self._has_ignored else [])]
        folder = to_json(self.image_folder.relative_to(self.options.out).as_posix())
        lines = [
            f"train: {folder}",
            f"val: {folder}  # name the folder of other images here",
            *(["# Train without ignored pixels: classes=" + str(list(range(len(names) - 1)))] * self._has_ignored),
            "names:",
            *(f"  {number}: {to_json(name)}" for number, name in enumerate(names)),
        ]
        write_new(self.options.out / "data.yaml", "\n".join(lines) + "\n")
