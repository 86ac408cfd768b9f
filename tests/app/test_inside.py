"""The parts of a score add up to it, and the stages are those of training."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tagseg.app.context import Context
from tagseg.app.images import open_images
from tagseg.app.inside import class_scores, look_inside, pamr_frames, score_parts, settings_of, with_tags
from tagseg.report.gallery import thumbnail
from tagseg.report.stages import compute_stages


def test_parts_add_up_to_the_score(run_context: Context) -> None:
    run, images = settings_of(run_context), open_images(run_context)
    stages = compute_stages(run, images.data, 0)
    pooled, penalty = score_parts(run, stages)
    assert pooled is not None
    assert penalty is not None
    assert max(penalty) <= 0.01
    total = torch.tensor(pooled) + torch.tensor(penalty)
    torch.testing.assert_close(total.sigmoid(), torch.tensor(stages.scores))


def test_the_table_has_tagged_and_predicted_classes_by_score(run_context: Context) -> None:
    run, images = settings_of(run_context), open_images(run_context)
    scores = class_scores(run, compute_stages(run, images.data, 0))
    assert {score.name for score in scores if score.is_tagged} == set(images.tags(0))
    probabilities = [score.probability for score in scores]
    assert probabilities == sorted(probabilities, reverse=True)


def test_the_slider_has_the_masks_before_pamr_and_after_each_iteration(run_context: Context) -> None:
    run, images = settings_of(run_context), open_images(run_context)
    stages = compute_stages(run, images.data, 0)
    frames = pamr_frames(run, stages, thumbnail(stages.pixels, 96))
    assert [frame.alt.partition(":")[0] for frame in frames][:2] == ["before PAMR", "after 1 iteration"]
    assert len(frames) == 1 + run.recipe.pseudo_labels.iterations


def test_the_pseudo_label_is_limited_to_the_tags(run_context: Context) -> None:
    images = open_images(run_context)
    name = images.data.classes[2]
    stages = compute_stages(settings_of(run_context), with_tags(images.data, 1, [name]), 0)
    assert stages.pseudo_label is not None
    assert set(stages.pseudo_label.ravel().tolist()) <= {-1, 0, 3, 255}
    assert stages.image_id == images.data.image_ids[1]


def test_a_page_shows_everything(run_context: Context) -> None:
    images = open_images(run_context)
    text = look_inside(run_context, images, 0, images.tags(0))
    for part in (
        "Prediction",
        "Pseudo label",
        "Ground truth",
        "nGWP (Eq. 3)",
        "size (Eq. 5)",
        "tagseg-frames",
        "64 x 64",
    ):
        assert part in text


@pytest.mark.parametrize("method", ["cam", "supervised"])
def test_other_methods_have_no_parts_and_no_pseudo_labels(method: str, tmp_path: Path) -> None:
    from tagseg.app.context import ModelQueue
    from tagseg.models import build_network
    from tagseg.models.config import ModelConfig
    from tagseg.predict import Predictor
    from tests.app.runs import shown_shapes

    images = shown_shapes(1)
    config = ModelConfig(method=method, backbone="test_resnet", pretrained=False, width=16)  # type: ignore[arg-type]
    model = Predictor(build_network(config, images.data.classes).eval(), device="cpu", optimize=False)
    context = Context(model, str(tmp_path), None, ModelQueue())
    text = look_inside(context, images, 0, images.tags(0))
    assert "Eq. 3" not in text
    assert "no pseudo labels" in text


def test_photos_stand_in_for_a_run(context: Context) -> None:
    images = open_images(context)
    assert images.data.image_ids == ("astronaut.jpg", "chelsea.jpg", "grace_hopper.jpg")
    run = settings_of(context)
    assert run.recipe.transforms.crop == 448
    assert run.classes == context.model.classes
    assert run.makes_pseudo_labels


def test_a_model_alone_has_the_papers_settings_at_its_size(run_context: Context) -> None:
    assert settings_of(run_context).recipe.transforms.crop == 64
    assert settings_of(run_context).predictor is run_context.model
    alone = settings_of(replace(run_context, run=None))
    assert alone.recipe.transforms.crop == 57  # of which 64 pixels are the working size
