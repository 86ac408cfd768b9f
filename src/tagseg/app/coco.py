"""A prediction in COCO's format: one annotation for each class, with its mask as run lengths."""

from typing import Any

from tagseg.export.coco import annotate
from tagseg.predict.prediction import Prediction


def to_coco(prediction: Prediction) -> dict[str, Any]:
    """Convert a prediction to a COCO dataset of one image."""
    summary = prediction.summary()
    return {
        "images": [{"id": 1, "file_name": prediction.name, **summary["size"]}],
        "categories": [{"id": value, "name": name} for value, name in enumerate(prediction.scores, start=1)],
        "annotations": [
            {
                "id": number,
                "image_id": 1,
                **annotate(entry["value"], prediction.mask == entry["value"]),
                "score": prediction.scores[entry["name"]],
            }
            for number, entry in enumerate(summary["classes"], start=1)
        ],
    }
