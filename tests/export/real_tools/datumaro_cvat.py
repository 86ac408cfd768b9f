"""Masks that datumaro, which CVAT imports with, reads."""

import sys
from typing import Any

import numpy as np
from datumaro.components.annotation import AnnotationType
from datumaro.components.dataset import Dataset

dataset = Dataset.import_from(sys.argv[1], "voc_segmentation")
labels = [label.name for label in dataset.categories()[AnnotationType.label]]
masks: dict[str, Any] = {}
for item in dataset:
    mask = np.zeros(item.media.size, np.uint8)
    for annotation in item.annotations:
        if annotation.type == AnnotationType.mask:
            mask[annotation.image.astype(bool)] = annotation.label
    masks[item.id] = mask
masks["classes"] = labels[1:]
np.savez(sys.argv[2], **masks)
