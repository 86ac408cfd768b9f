"""Write small datasets for tests."""

import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from PIL import Image

RED, GREEN, BLUE = (200, 30, 30), (30, 200, 30), (30, 30, 200)


def image_bytes(color: tuple[int, int, int] = RED, size: tuple[int, int] = (12, 8), suffix: str = "png") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, {"jpg": "JPEG"}.get(suffix, suffix))
    return buffer.getvalue()


def write_image(path: Path, color: tuple[int, int, int] = RED, size: tuple[int, int] = (12, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(image_bytes(color, size, path.suffix[1:]))
    return path


def write_mask(path: Path, value: int, size: tuple[int, int] = (12, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = Image.new("P", size, value)
    mask.putpalette([i for value in range(256) for i in (value, 255 - value, 7)])
    mask.save(path)
    return path


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def write_voc(root: Path) -> Path:
    """Write VOC with train a1 and val b1, b2, and SBD with a1, b1 (also VOC's), c1 (XML in VOC) and d1 (SBD only)."""
    voc, sbd = root / "VOCdevkit" / "VOC2012", root / "benchmark_RELEASE" / "dataset"
    for name, objects in {"a1": ["dog", "person", "dog"], "b1": ["cat"], "b2": ["sofa"], "c1": ["bus"]}.items():
        write_image(voc / "JPEGImages" / f"{name}.jpg")
        elements = "".join(f"<object><name>{o}</name><part><name>head</name></part></object>" for o in objects)
        write_text(voc / "Annotations" / f"{name}.xml", f"<annotation>{elements}</annotation>")
    for name, value in {"a1": 12, "b1": 8, "b2": 18}.items():
        write_mask(voc / "SegmentationClass" / f"{name}.png", value)
    lists = voc / "ImageSets" / "Segmentation"
    write_text(lists / "train.txt", "a1\n")
    write_text(lists / "val.txt", "b1\nb2\n")
    for name, value in {"a1": 12, "b1": 8, "c1": 6, "d1": 20}.items():
        write_image(sbd / "img" / f"{name}.jpg")
        write_sbd_mat(sbd / "cls" / f"{name}.mat", value)
    write_text(sbd / "train.txt", "a1\nc1\n")
    write_text(sbd / "val.txt", "b1\nd1\n")
    return root


def write_sbd_mat(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = np.zeros((8, 12), np.uint8)
    mask[2:5, 3:6] = value
    ground_truth = {"Boundaries": np.zeros((20, 1)), "Segmentation": mask, "CategoriesPresent": np.array([[value]])}
    scipy.io.savemat(path, {"GTcls": ground_truth})


def write_coco(root: Path, annotations: Iterable[dict[str, Any]]) -> Path:
    """Write two images of 12 x 8, the second without annotations, and the categories 3 (dog) and 1 (cat)."""
    for name in ("one.jpg", "two.jpg"):
        write_image(root / "val" / name)
    content = {
        "images": [
            {"id": 7, "file_name": "one.jpg", "width": 12, "height": 8},
            {"id": 9, "file_name": "two.jpg", "width": 12, "height": 8},
        ],
        "categories": [{"id": 3, "name": "dog"}, {"id": 1, "name": "cat"}],
        "annotations": list(annotations),
    }
    return write_text(root / "annotations" / "instances_val.json", json.dumps(content))


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
