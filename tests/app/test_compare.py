"""Two settings, or two models, on one image."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tagseg.app.compare import MODEL_SIZE, Models, Side, compare, parse_side, predict, with_classes
from tagseg.app.context import Context
from tagseg.app.images import open_images
from tagseg.errors import ConfigError, TagsegError


def test_equal_settings_have_equal_masks(run_context: Context) -> None:
    side = Side(run_context.model_path)
    text = compare(run_context, Models(run_context), open_images(run_context), 0, [side, side])
    assert "differ in 0.0 % of the pixels" in text
    assert "mIoU of this image" in text


def test_settings_are_used_and_the_model_keeps_its_own(run_context: Context) -> None:
    pixels = open_images(run_context).data.images.read(0)
    side = Side(run_context.model_path, tta=True, crf=True, size=96, threshold=1.0)
    before = run_context.model.settings
    prediction, seconds = predict(run_context, Models(run_context), side, pixels)
    assert seconds > 0
    assert prediction.labels == ()
    assert (prediction.settings.size, prediction.crf, len(prediction.settings.scales)) == (96, True, 4)
    assert run_context.model.settings is before
    assert str(side) == f"{run_context.model_path}, TTA, CRF, size 96, threshold 1"


def test_models_of_other_classes_are_compared_by_name(run_context: Context, run: Path) -> None:
    images = open_images(run_context)
    sides = [Side(str(run)), Side("default")]
    text = compare(run_context, Models(run_context), images, 0, sides)
    assert "other classes" in text
    prediction, _ = predict(run_context, Models(run_context), sides[0], images.data.images.read(0))
    classes = ["another", *prediction.scores]
    mask = with_classes(prediction, classes)
    assert (mask == np.where(prediction.mask > 0, prediction.mask.astype(int) + 1, 0)).all()


def test_another_model_is_loaded_once(run_context: Context, run: Path) -> None:
    models = Models(run_context)
    assert models.get(run_context.model_path) is run_context.model
    assert models.get(str(run / "model.safetensors")) is models.get(str(run / "model.safetensors"))
    with pytest.raises(TagsegError, match="no-such-run"):
        models.get("no-such-run")


def test_runs_beside_the_run_are_offered(run_context: Context, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    context = replace(run_context, run=tmp_path / "a", model_path=str(tmp_path / "a"))
    assert Models(context).names() == [str(tmp_path / "a"), "default", str(tmp_path / "b")]


def test_other_machines_name_no_models(run_context: Context, run: Path) -> None:
    models = Models(replace(run_context, is_local=False))
    assert models.names() == [run_context.model_path, "default"]
    with pytest.raises(ConfigError, match="this machine alone"):
        models.get(str(run / "model.safetensors"))


@pytest.mark.parametrize(
    ("size", "threshold"), [("4096", ""), ("-1", ""), ("x", ""), (MODEL_SIZE, "high"), (MODEL_SIZE, "2")]
)
def test_settings_that_cannot_be_used(run_context: Context, size: str, threshold: str) -> None:
    with pytest.raises(ConfigError):
        predict(
            run_context,
            Models(run_context),
            parse_side(run_context.model_path, False, False, size, threshold),
            open_images(run_context).data.images.read(0),
        )
