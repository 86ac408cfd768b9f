import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tagseg
from tagseg.errors import ConfigError
from tagseg.export.pseudo_labels import ignore_uncertain
from tagseg.predict.engine import ImageSegmentation
from tests.training.small_run import student_recipe

DATA = "shapes:10"


@pytest.fixture(scope="module")
def model() -> tagseg.Predictor:
    """A network with random weights, whose masks have many classes."""
    torch.manual_seed(0)
    network = tagseg.build_model("test_resnet", tagseg.DataSource(DATA).open().classes, width=16)
    with torch.no_grad():
        network.get_parameter("decoder.8.weight").mul_(20)
    settings = tagseg.Predictor(network).settings.with_size(96)
    return tagseg.Predictor(network.eval(), settings, device="cpu", precision="float32")


def read_masks(out: Path) -> dict[str, np.ndarray]:
    return {file.stem: np.array(Image.open(file)) for file in sorted((out / "SegmentationClass").glob("*.png"))}


@pytest.mark.parametrize("crf", [False, True])
def test_classes_are_those_of_the_tags(model: tagseg.Predictor, crf: bool, tmp_path: Path) -> None:
    coverage = tagseg.write_pseudo_labels(DATA, tmp_path / "out", model=model, crf=crf)
    data, masks = tagseg.DataSource(DATA).open(), read_masks(tmp_path / "out")
    assert list(masks) == list(data.image_ids)
    for index, (image_id, mask) in enumerate(masks.items()):
        tags = [data.classes[k] for k in data.labels[index].nonzero().flatten()]
        assert np.array_equal(mask, model.predict(data.images.read(index), tags=tags, crf=crf).mask), image_id
    ids = (tmp_path / "out" / "ImageSets" / "Segmentation" / "train.txt").read_text().split()
    assert ids == list(data.image_ids)
    assert json.loads((tmp_path / "out" / "coverage.json").read_text())["images"] == coverage.images == 10
    assert [row.tagged_images for row in coverage.classes[1:]] == data.labels.sum(0).int().tolist()
    assert sum(row.pixel_share for row in coverage.classes) == pytest.approx(1)
    assert coverage.ignored_share == 0


def test_uncertain_pixels_are_ignored(model: tagseg.Predictor, tmp_path: Path) -> None:
    tagseg.write_pseudo_labels(DATA, tmp_path / "all", model=model, tta=True)
    coverage = tagseg.write_pseudo_labels(DATA, tmp_path / "sure", model=model, tta=True, ignore_below=0.8)
    every, certain = read_masks(tmp_path / "all"), read_masks(tmp_path / "sure")
    ignored = np.concatenate([mask.ravel() == 255 for mask in certain.values()])
    assert 0 < ignored.mean() < 1
    assert coverage.ignored_share == pytest.approx(ignored.mean())
    for image_id, mask in certain.items():
        assert np.array_equal(mask[mask != 255], every[image_id][mask != 255])


def test_probability_is_the_share_of_the_merged_masks() -> None:
    probs = torch.tensor([0.1, 0.3, 0.6]).view(3, 1, 1).expand(3, 2, 2).clone()
    probs[:, 0, 0] = torch.tensor([0.0, 0.0, 0.1])  # the only class, however low
    segmentation = ImageSegmentation((0, 4), np.full((2, 2), 5, np.uint8), probs)
    assert ignore_uncertain(segmentation, 0.7).tolist() == [[5, 255], [255, 255]]
    assert ignore_uncertain(segmentation, 0.5).tolist() == [[5, 5], [5, 5]]


def test_interrupted_call_resumes(model: tagseg.Predictor, tmp_path: Path) -> None:
    out = tmp_path / "out"
    coverage = tagseg.write_pseudo_labels(DATA, out, model=model, ignore_below=0.6)
    masks = read_masks(out)
    files = sorted((out / "SegmentationClass").glob("*.png"))
    for file in files[::2]:
        file.unlink()
    times = {file: file.stat().st_mtime_ns for file in files[1::2]}
    assert tagseg.write_pseudo_labels(DATA, out, model=model, ignore_below=0.6) == coverage
    assert all(np.array_equal(mask, masks[image_id]) for image_id, mask in read_masks(out).items())
    assert {file: file.stat().st_mtime_ns for file in files[1::2]} == times


def test_other_settings_are_refused(model: tagseg.Predictor, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tagseg.write_pseudo_labels(DATA, out, model=model)
    for settings, difference in (
        ({"crf": True}, "crf is false there, true here"),
        ({"ignore_below": 0.5}, "ignore_below is 0.0 there, 0.5 here"),
        ({"size": 64}, "inference.size is 96 there, 64 here"),
    ):
        with pytest.raises(ConfigError, match=f"holds pseudo labels of other settings .*{difference}"):
            tagseg.write_pseudo_labels(DATA, out, model=model, **settings)
    other = tagseg.build_model("test_resnet", model.classes, width=16)
    with pytest.raises(ConfigError, match=r"model\.weights is"):
        tagseg.write_pseudo_labels(DATA, out, model=tagseg.Predictor(other.eval(), model.settings, device="cpu"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ConfigError, match="exists and is no folder of pseudo labels"):
        tagseg.write_pseudo_labels(DATA, tmp_path / "other", model=model)


def test_network_learns_from_pseudo_labels(
    model: tagseg.Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of pseudo labels is a dataset, from any current folder."""
    source = tmp_path / "photos"
    source.mkdir()
    data = tagseg.DataSource(DATA).open()
    rows = ["image,labels"]
    for index, image_id in enumerate(data.image_ids):
        Image.fromarray(data.images.read(index)).save(source / f"{image_id}.png")
        rows.append(f"{image_id}.png,{';'.join(data.classes[k] for k in data.labels[index].nonzero().flatten())}")
    (source / "tags.csv").write_text("\n".join(rows))
    monkeypatch.chdir(source)
    tagseg.write_pseudo_labels("tags.csv", tmp_path / "out", model=model, ignore_below=0.5)
    monkeypatch.chdir(tmp_path)
    images, masks = tagseg.DataSource("out").open(), tagseg.DataSource("out").open_masks()
    assert images.classes == masks.classes == model.classes
    assert torch.equal(images.labels, data.labels)
    expected = read_masks(tmp_path / "out")
    assert all(np.array_equal(masks[image_id], expected[image_id]) for image_id in images.image_ids)
    student = tagseg.train_masks("out", "run", recipe=student_recipe("training.epochs=1"), workers=0)
    assert student.classes == model.classes
