"""Masks that label-studio-sdk decodes, with the labels of the labeling interface as it parses them."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from label_studio_sdk.converter.brush import decode_rle
from label_studio_sdk.label_interface import LabelInterface

export = Path(sys.argv[1])
interface = LabelInterface((export / "label_config.xml").read_text(encoding="utf-8"))
names = list(interface.get_control("label").labels)
masks: dict[str, Any] = {}
for task in json.loads((export / "tasks.json").read_text(encoding="utf-8")):
    assert interface.validate_task({"data": task["data"]})
    assert not interface.validate_prediction(task["predictions"][0], return_errors=True)
    mask = np.zeros(1, np.uint8)
    for result in task["predictions"][0]["result"]:
        height, width = result["original_height"], result["original_width"]
        alpha = decode_rle(result["value"]["rle"]).reshape(height, width, 4)[:, :, 3]
        mask = np.where(alpha > 0, np.uint8(1 + names.index(result["value"]["brushlabels"][0])), mask)
    masks[task["data"]["file_name"]] = mask
masks["classes"] = names
np.savez(sys.argv[2], **masks)
