"""Tags that the model contradicts."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tagseg
from tagseg.report.doubtful_tags import MAX_IMAGES, find_doubtful_tags, rank_doubts
from tagseg.report.examination import Examination
from tests.report.html_page import ParsedPage
from tests.report.small_runs import CLASSES, make_images
from tests.training.small_run import small_recipe


def test_wrong_tags_come_first() -> None:
    random = np.random.default_rng(0)
    correct = random.random((400, 6)) < 0.3
    scores = np.clip(np.where(correct, 0.85, 0.15) + 0.15 * random.standard_normal(correct.shape), 0.001, 0.999)
    labels = correct.copy()
    wrong = random.choice(400, 20, replace=False)
    classes = random.integers(0, 6, 20)
    labels[wrong, classes] ^= True
    ranked = rank_doubts(scores, labels, [0.5] * 6)
    found = {(doubt.image, doubt.class_index) for doubts in ranked for doubt in doubts[:1]}
    assert {doubts[0].image for doubts in ranked[:20]} <= set(wrong.tolist())
    assert len(found & set(zip(wrong.tolist(), classes.tolist(), strict=True))) >= 18
    excess = [doubts[0].excess for doubts in ranked]
    assert excess == sorted(excess, reverse=True)


def test_both_kinds_of_errors_are_told_apart() -> None:
    scores = np.array([[0.98, 0.9], [0.02, 0.1], [0.97, 0.2], [0.03, 0.2]])
    labels = np.array([[False, True], [True, False], [True, False], [False, False]])
    (extra,), (missed,) = sorted(rank_doubts(scores, labels, [0.4, 0.4]), key=lambda doubts: doubts[0].image)
    assert (extra.image, extra.class_index, extra.is_tagged, extra.score) == (0, 0, False, 0.98)
    assert (missed.image, missed.class_index, missed.is_tagged, missed.score) == (1, 0, True, 0.02)


def test_a_prediction_is_no_contradiction_whatever_its_score() -> None:
    scores, labels = np.array([[0.2], [0.3], [0.7]]), np.array([[True], [False], [False]])
    assert [doubts[0].image for doubts in rank_doubts(scores, labels, [0.1])] == [2]
    assert {doubts[0].image for doubts in rank_doubts(scores, labels, [0.6])} == {0, 2}


def test_a_class_that_was_not_learned_does_not_fill_the_list() -> None:
    labels = np.ones((50, 2), bool)
    scores = np.full((50, 2), 0.95)
    scores[:, 0] = 0.01  # not learned: the score of every image is low
    scores[7, 1] = 0.02
    assert rank_doubts(scores, labels, [0.5, 0.5])[0][0][:2] == (7, 1)


def test_scores_of_0_and_1_have_a_finite_loss() -> None:
    doubts = rank_doubts(np.array([[0.0, 1.0]]), np.array([[True, False]]), [0.5, 0.5])
    assert [len(entries) for entries in doubts] == [2]
    assert all(np.isfinite(doubt.excess) for doubt in doubts[0])


def test_images_of_both_splits_are_ranked_together() -> None:
    def examination(split: str, num_wrong: int) -> Examination:
        images = make_images(30, "val" if split == "validation" else "train")
        scores = np.where(images.labels.numpy() > 0.5, 0.9, 0.1)
        scores[:num_wrong] = 1 - scores[:num_wrong]
        return Examination(split, images, 30, scores, np.zeros_like(scores), ())

    doubtful = find_doubtful_tags([examination("training", 18), examination("validation", 14)], [0.5] * len(CLASSES))
    assert doubtful.num_images == 32
    assert doubtful.num_tags == 32 * len(CLASSES)
    assert len(doubtful.images) == MAX_IMAGES
    assert {image.split for image in doubtful.images} == {"training", "validation"}
    first = doubtful.images[0]
    assert {name for is_tagged, name, _ in first.doubts if is_tagged} == set(first.tags)
    assert find_doubtful_tags([], [0.5]).images == []


@pytest.mark.slow
def test_report_lists_the_wrong_tags_of_a_table(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    names = ("blue", "green", "red")
    rows, wrong = ["image,labels"], {f"{index}" for index in range(0, 120, 20)}
    for index in range(120):
        image, classes = random.integers(80, 120, (32, 32, 3), np.uint8), {index % 3, (index // 3) % 3}
        for k in classes:
            top, left = random.integers(0, 20, 2)
            image[top : top + 12, left : left + 12] = np.eye(3, dtype=np.uint8)[2 - k] * 255
        Image.fromarray(image).save(tmp_path / f"{index}.png")
        tags = classes ^ {index % 3, (index + 1) % 3} if f"{index}" in wrong else classes
        rows.append(f"{index}.png,{';'.join(names[k] for k in sorted(tags))}")
    table, run = tmp_path / "photos.csv", tmp_path / "run"
    table.write_text("\n".join(rows) + "\n")
    recipe = small_recipe("transforms.crop=32", "training.epochs=6", "model.method=cam", "inference.size=32")
    tagseg.train(table, run, recipe=recipe, workers=0)
    page = ParsedPage(tagseg.write_report(run, count=1))
    first = [alt.partition(",")[0] for alt in page.doubtful_images[:8]]
    assert len(wrong & set(first)) >= 4, first
    assert "all 107 training images and all 13 validation images" in page.text
