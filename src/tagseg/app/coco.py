"""A prediction in COCO's format: one annotation for each class, with its mask as run lengths."""

from typing import Any

import numpy as np
from pycocotools import mask as coco_masks

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
                "category_id": entry["value"],
                "segmentation": _run_lengths(prediction, entry["value"]),
                "area": entry["area"],
                "bbox": _to_coco_box(entry["box"]),
                "iscrowd": 0,
                "score": prediction.scores[entry["name"]],
            }
            for number, entry in enumerate(summary["classes"], start=1)
        ],
    }


def _run_lengths(prediction: Prediction, value: int) -> dict[str, Any]:
    encoded = coco_masks.encode(np.asfortranarray(prediction.mask == value, dtype=np.uint8))
    return {"size": encoded["size"], "counts": encoded["counts"].decode()}


def _to_coco_box(box: list[int]) -> list[int]:
    left, top, right, bottom = box
    return [left, top, right - left, bottom - top]
