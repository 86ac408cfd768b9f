"""Examination of a model on images."""

from pathlib import Path

import numpy as np
from PIL import Image

from tagseg.data import ImageDataset
from tagseg.data.files import FileRef, ImageFiles
from tagseg.predict import load
from tagseg.report.examination import examine
from tests.report.small_runs import CLASSES, IMAGES


def test_scores_are_those_of_a_prediction_and_masks_those_of_the_tags(trained: Path) -> None:
    model = load(trained)
    examination = examine(model, IMAGES, "validation")
    assert examination.total == len(examination.images) == 12
    prediction = model.predict(IMAGES.images.read(3), tags=[CLASSES[k] for k in IMAGES.labels[3].nonzero()[:, 0]])
    np.testing.assert_allclose(examination.scores[3], list(prediction.scores.values()), atol=1e-5)
    counts = np.bincount(prediction.mask.ravel(), minlength=7)[1:]
    np.testing.assert_allclose(examination.shares[3], counts / prediction.mask.size, atol=1e-3)
    assert (examination.shares[~examination.labels] == 0).all()
    assert (examination.shares.sum(1) <= 1).all()


def test_a_number_of_images_is_spaced_evenly(trained: Path) -> None:
    examination = examine(load(trained), IMAGES, "training", count=3)
    assert examination.images.image_ids == ("val-00000", "val-00004", "val-00008")
    assert examination.total == 12
    assert examine(load(trained), IMAGES, "training", count=0).scores.shape == (0, 6)


def test_images_that_cannot_be_read_are_left_out(trained: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.png" for name in IMAGES.image_ids]
    for index, file in enumerate(files):
        Image.fromarray(IMAGES.images.read(index)).save(file)
    files[5].write_bytes(b"no image")
    images = ImageDataset(CLASSES, IMAGES.image_ids, IMAGES.labels, ImageFiles(tuple(map(FileRef, files))))
    examination = examine(load(trained), images, "validation")
    assert examination.images.image_ids == tuple(name for name in IMAGES.image_ids if name != "val-00005")
    (reason,) = examination.unreadable
    assert "val-00005.png" in reason
