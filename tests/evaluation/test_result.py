import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from tagseg.evaluation.metrics import ConfusionMatrix
from tagseg.evaluation.result import Evaluation
from tests.evaluation.conftest import COUNT, print_to_text


def test_saved_evaluation_can_be_read(evaluation: Evaluation, tmp_path: Path) -> None:
    path = evaluation.save(tmp_path / "run")
    assert path.name == "evaluation.json"
    restored = Evaluation.from_json(path.read_text())
    assert restored.to_json() == evaluation.to_json()
    assert restored.mean_iou("true-tags") == evaluation.mean_iou("true-tags")
    content = json.loads(path.read_text())
    assert list(content["protocols"]) == ["predicted-tags", "true-tags"]
    assert (content["images"], content["crf"], content["settings"]["scales"]) == (COUNT, False, [1.0])
    assert content["settings"]["thresholds_from"] == "tags"
    assert content["protocols"]["true-tags"]["mean"]["iou"] == evaluation.mean_iou("true-tags")
    mean_without_background = content["protocols"]["true-tags"]["mean_without_background"]["iou"]
    assert mean_without_background == evaluation.mean_iou("true-tags", background=False)


def test_absent_class_is_null_in_json(evaluation: Evaluation) -> None:
    counts = np.zeros((7, 7), dtype=np.int64)
    counts[0, 0] = 5
    content = json.loads(replace(evaluation, confusion={"true-tags": ConfusionMatrix(7, counts)}).to_json())
    metrics = content["protocols"]["true-tags"]
    assert metrics["per_class"]["disc"] == {"iou": None, "precision": None, "recall": None}
    assert metrics["mean"]["iou"] == 1
    assert metrics["classes_counted"] == 1


def test_printed_table_names_protocols_and_settings(evaluation: Evaluation) -> None:
    text = print_to_text(evaluation)
    for expected in ("predicted-tags", "true-tags", "background", "disc", f"{COUNT} images", "scales 1", "CRF off"):
        assert expected in text
    assert "thresholds 0.2 (tuned on image tags)" in text
    assert "MASKS" not in text
    two_classes = ConfusionMatrix(7, np.diag([5, 5, 0, 0, 0, 0, 0]))
    assert "true-tags: 2 of 7 classes occur" in print_to_text(replace(evaluation, confusion={"true-tags": two_classes}))
