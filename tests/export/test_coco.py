"""COCO's JSON as pycocotools reads it."""

import json
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import tagseg
from tagseg.data import DataSource
from tests.export.small_masks import CLASSES, write_small_masks


@pytest.mark.parametrize("polygons", [False, True])
def test_pycocotools_loads_and_evaluates(polygons: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_small_masks(tmp_path / "data")
    tagseg.export_masks(data, tmp_path / "out", format="coco", polygons=polygons)
    path = tmp_path / "out" / "annotations" / "instances_train.json"
    coco = COCO(path)
    masks = DataSource(data).open_masks()
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == [*CLASSES, "ignored"]
    for image in coco.imgs.values():
        mask = np.zeros((image["height"], image["width"]), np.uint8)
        for annotation in coco.imgToAnns[image["id"]]:
            region = coco.annToMask(annotation).astype(bool)
            assert not mask[region].any()
            mask[region] = annotation["category_id"]
            rows, columns = np.nonzero(region)
            assert annotation["area"] == region.sum()
            left, top, width, height = annotation["bbox"]
            assert (left, top) == (columns.min(), rows.min())
            assert (left + width - 1, top + height - 1) == (columns.max(), rows.max())
            assert annotation["iscrowd"] == (annotation["category_id"] == 255)
        assert np.array_equal(mask, masks[image["file_name"].removesuffix(".png")])
    annotations = json.loads(path.read_text())["annotations"]
    detections = [{**entry, "score": 0.9} for entry in annotations if not entry["iscrowd"]]
    evaluation = COCOeval(coco, coco.loadRes(detections), "segm")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    assert evaluation.stats[0] == pytest.approx(1)  # ignored pixels take part in no mean
    capsys.readouterr()
