import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import confusion_matrix, jaccard_score, precision_score, recall_score

from tagseg.evaluation.metrics import ConfusionMatrix, mean


@given(classes=st.integers(2, 25), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_metrics_equal_scikit_learn(classes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    predictions = random.integers(0, classes, (2, 13, 17), dtype=np.uint8)
    ground_truths = random.integers(0, classes, (2, 13, 17), dtype=np.uint8)
    ground_truths[random.random(ground_truths.shape) < 0.1] = 255
    matrix = ConfusionMatrix(classes)
    for prediction, ground_truth in zip(predictions, ground_truths, strict=True):
        matrix.update(prediction, ground_truth)
    valid = ground_truths != 255
    y_true, y_pred, labels = ground_truths[valid], predictions[valid], list(range(classes))
    assert np.array_equal(matrix.counts, confusion_matrix(y_true, y_pred, labels=labels))
    options = {"labels": labels, "average": None, "zero_division": 0}
    assert np.allclose(np.nan_to_num(matrix.iou), jaccard_score(y_true, y_pred, **options))
    assert np.allclose(np.nan_to_num(matrix.precision), precision_score(y_true, y_pred, **options))
    assert np.allclose(np.nan_to_num(matrix.recall), recall_score(y_true, y_pred, **options))


def test_absent_class_does_not_count() -> None:
    matrix = ConfusionMatrix(4)
    matrix.update(np.array([[0, 1, 1, 3]]), np.array([[0, 1, 0, 255]], dtype=np.uint8))
    assert matrix.iou[:2].tolist() == [0.5, 0.5]
    assert np.isnan(matrix.iou[2:]).all()  # class 3 is predicted only in an ignored pixel
    assert mean(matrix.iou) == 0.5
    assert np.isnan(mean(ConfusionMatrix(4).iou))


def test_matrices_can_be_added() -> None:
    random = np.random.default_rng(0)
    parts, total = [ConfusionMatrix(3), ConfusionMatrix(3)], ConfusionMatrix(3)
    for part in parts:
        prediction, ground_truth = random.integers(0, 3, (2, 8, 8), dtype=np.uint8)
        part.update(prediction, ground_truth)
        total.update(prediction, ground_truth)
    assert np.array_equal((parts[0] + parts[1]).counts, total.counts)
    with pytest.raises(ValueError, match="of 3 and 4 classes cannot be added"):
        parts[0] + ConfusionMatrix(4)


def test_at_most_255_classes() -> None:
    values = np.arange(255, dtype=np.uint8)[None]
    matrix = ConfusionMatrix(255)
    matrix.update(values, values)
    assert np.array_equal(matrix.counts, np.eye(255))
    with pytest.raises(ValueError, match="1 to 255 classes with the background, got 256"):
        ConfusionMatrix(256)


@pytest.mark.parametrize(
    ("prediction", "ground_truth", "message"),
    [
        ([[0, 1]], [[0, 1], [1, 1]], r"one size, got \[1, 2\] and \[2, 2\]"),
        ([[0, 3]], [[0, 1]], "prediction must have the values 0 to 2, got 0 to 3"),
        ([[0, 1]], [[0, 7]], "ground truth has the value 7, but there are 3 classes"),
    ],
)
def test_wrong_shapes_and_values_are_refused(
    prediction: list[list[int]], ground_truth: list[list[int]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ConfusionMatrix(3).update(np.array(prediction), np.array(ground_truth, dtype=np.uint8))
