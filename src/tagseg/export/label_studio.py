"""Label Studio's tasks, whose predictions are brush masks as run lengths.

tasks.json             a task for each image
label_config.xml       the labeling interface of the project, with the names of the classes
images/ID.jpg          images

Ignored pixels are painted with the label "ignored", which is always declared.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from tagseg._version import __version__
from tagseg.data.annotations import IGNORED_NAME
from tagseg.data.brush_rle import encode_brush
from tagseg.data.label_studio import BRUSH, FILE_NAME
from tagseg.data.masks import IGNORE_LABEL
from tagseg.export.mask_writer import ExportedImage, ExportOptions, JsonLists, MaskWriter, write_new
from tagseg.predict.render import overlay_palette

_IMAGES = "images"
_LOCAL_FILES = f"/data/local-files/?d={_IMAGES}/"  # Label Studio's URL of files below its document root
_IMAGE_TAG, _LABEL_TAG = "image", "label"  # names in the labeling interface


class LabelStudioWriter(MaskWriter):
    """Writer of Label Studio's files."""

    has_urls = True

    def __init__(self, options: ExportOptions) -> None:
        super().__init__(options)
        self._url = _LOCAL_FILES if options.image_url is None else options.image_url.rstrip("/") + "/"
        self._file = JsonLists(options.out / "tasks.json", "[")

    @property
    def image_folder(self) -> Path:
        return self.options.out / _IMAGES

    def encode(self, image: ExportedImage) -> dict[str, Any]:
        height, width = image.mask.shape
        results = [
            {
                "id": f"class-{value}",
                "type": BRUSH,
                "from_name": _LABEL_TAG,
                "to_name": _IMAGE_TAG,
                "original_width": width,
                "original_height": height,
                "image_rotation": 0,
                "value": {
                    "format": "rle",
                    "rle": encode_brush(image.mask == value),
                    BRUSH: [self.options.name_of(value)],
                },
            }
            for value in image.values
        ]
        return {
            "data": {_IMAGE_TAG: self._url + quote(image.file_name), FILE_NAME: image.file_name},
            "predictions": [{"model_version": f"tagseg {__version__}", "result": results}],
        }

    def add(self, encoded: dict[str, Any]) -> None:
        self._file.add(encoded)

    def finish(self) -> None:
        names = {**dict(enumerate(self.options.classes, start=1)), IGNORE_LABEL: IGNORED_NAME}
        colors = overlay_palette(256).tolist()
        labels = [
            f'    <Label value={quoteattr(name)} background="#{{:02x}}{{:02x}}{{:02x}}"/>'.format(*colors[value])
            for value, name in names.items()
        ]
        lines = [
            "<View>",
            f'  <Image name="{_IMAGE_TAG}" value="${_IMAGE_TAG}" zoom="true"/>',
            f'  <BrushLabels name="{_LABEL_TAG}" toName="{_IMAGE_TAG}">',
            *labels,
            "  </BrushLabels>",
            "</View>",
        ]
        write_new(self.options.out / "label_config.xml", "\n".join(lines) + "\n")
        self._file.finish("\n]\n")

    def close(self) -> None:
        self._file.close()
