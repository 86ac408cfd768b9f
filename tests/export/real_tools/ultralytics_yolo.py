"""Masks that ultralytics' own dataset reads."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from ultralytics.cfg import get_cfg
from ultralytics.data.build import build_yolo_dataset
from ultralytics.data.utils import check_det_dataset, polygons2masks_overlap

export, out = Path(sys.argv[1]), sys.argv[2]
data = check_det_dataset(export / "data.yaml", autodownload=False)
dataset = build_yolo_dataset(get_cfg(overrides={"task": "segment"}), data["train"], 1, data, mode="val")
masks: dict[str, Any] = {}
for entry in dataset.labels:
    height, width = entry["shape"]
    segments = [segment * (width, height) for segment in entry["segments"]]
    mask = np.zeros((height, width), np.uint8)
    if segments:
        overlap, order = polygons2masks_overlap((height, width), segments, downsample_ratio=1)
        values = np.concatenate([[0], 1 + entry["cls"].ravel()[order]]).astype(np.uint8)
        mask = values[overlap]
    name = Path(entry["im_file"]).relative_to(data["train"]).with_suffix("").as_posix()
    masks[name] = mask
masks["classes"] = [data["names"][number] for number in range(data["nc"])]
np.savez(out, **masks)
