"""The images to look at first are those that the model is uncertain about, contradicts, or gets wrong."""

from pathlib import Path

import numpy as np
import pytest

import tagseg
from tagseg.app.context import Context
from tagseg.app.images import ShownImages, open_images
from tagseg.app.ranking import (
    DISAGREEMENT,
    IOU,
    NAME,
    ORDERS,
    UNCERTAINTY,
    Ranking,
    find_doubts,
    image_iou,
    orders,
    with_class,
)
from tagseg.data import ImageDataset, MaskDataset
from tagseg.data.files import FileRef, ImageFiles
from tagseg.evaluation import evaluate
from tests.app.runs import shown_shapes


@pytest.fixture(scope="module")
def images(run_context: Context) -> ShownImages:
    return open_images(run_context)


@pytest.fixture(scope="module")
def ranking(run_context: Context, images: ShownImages) -> Ranking:
    ranking = Ranking(run_context, images)
    ranking.start()
    ranking.wait()
    return ranking


def test_every_validation_image_is_examined_once(ranking: Ranking, images: ShownImages, run: Path) -> None:
    assert not ranking.problem
    assert ranking.total == len(images.data) > 4
    assert sorted(image.image_id for image in ranking.examined) == sorted((run / "validation.txt").read_text().split())
    ranking.start()
    ranking.wait()
    assert len(ranking.examined) == ranking.total


def test_results_are_those_of_predict_and_evaluate(ranking: Ranking, images: ShownImages, run_context: Context) -> None:
    image = ranking.examined[0]
    prediction = run_context.model.predict(images.data.images.read(image.index))
    assert image.uncertainty == prediction.uncertainty
    assert image.predicted == prediction.labels
    assert images.masks is not None
    one = MaskDataset(images.data.classes, {image.image_id: lambda: images.masks[image.image_id]})  # type: ignore[index]
    evaluation = evaluate(run_context.model, images.data, one)
    assert image.iou == pytest.approx(evaluation.mean_iou("predicted-tags"))


def test_orders(ranking: Ranking, images: ShownImages, run_context: Context) -> None:
    assert orders(run_context, images) == [UNCERTAINTY, DISAGREEMENT, IOU, NAME]
    examined, doubts = ranking.examined, find_doubts(run_context, images, ranking.examined)
    ordered = {name: order(examined, doubts) for name, order in ORDERS.items()}
    assert all(sorted(image.index for image in images) == list(range(ranking.total)) for images in ordered.values())
    uncertainties = [image.uncertainty for image in ordered[UNCERTAINTY]]
    assert uncertainties == sorted(uncertainties, reverse=True)
    assert [image.image_id for image in ordered[NAME]] == sorted(image.image_id for image in examined)
    ious = [image.iou or 0 for image in ordered[IOU]]
    assert ious == sorted(ious)
    assert [image.index for image in ordered[DISAGREEMENT]][: len(doubts)] == list(doubts)


def test_a_class_has_the_images_that_are_tagged_with_it_or_show_it(ranking: Ranking, images: ShownImages) -> None:
    name = images.data.classes[0]
    found = {image.index for image in with_class(ranking.examined, images, name)}
    for image in ranking.examined:
        assert (image.index in found) == (name in images.tags(image.index) or name in image.predicted)


def test_orders_need_tags_and_masks(run_context: Context) -> None:
    images = shown_shapes()
    assert orders(run_context, ShownImages(images.data, None, have_tags=True)) == [UNCERTAINTY, DISAGREEMENT, NAME]
    assert orders(run_context, ShownImages(images.data, None, have_tags=False)) == [UNCERTAINTY, NAME]


def test_unreadable_images_are_left_out(run_context: Context, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no image")
    shape = shown_shapes(1).data
    files = ImageFiles((FileRef(tmp_path / "a.jpg"), FileRef(Path(tagseg.__file__).parent / "photos" / "chelsea.jpg")))
    data = ImageDataset(shape.classes, ("a", "b"), shape.labels.repeat(2, 1), files)
    ranking = Ranking(run_context, ShownImages(data, None, have_tags=True))
    ranking.start()
    ranking.wait()
    assert [image.image_id for image in ranking.examined] == ["b"]
    assert ranking.examined[0].iou is None
    assert "a.jpg" in ranking.unreadable[0]


def test_iou_of_one_image(run_context: Context) -> None:
    prediction = run_context.model.predict(shown_shapes(1).data.images.read(0))
    mask = prediction.mask.astype(np.uint8)
    assert image_iou(prediction, mask) == 1
    assert image_iou(prediction, mask.repeat(2, 0).repeat(2, 1)) == 1
    assert np.isnan(image_iou(prediction, np.full_like(mask, 255)))
