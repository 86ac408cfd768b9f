"""Stages of an image, from prediction to pseudo label."""

from pathlib import Path

import numpy as np
import torch

from tagseg.report.run_data import read_run
from tagseg.report.stages import compute_stages, evenly_spaced, refine_by_iteration
from tagseg.training.pseudo_labels import UNLABELED
from tests.report.small_runs import IMAGES


def test_stages_equal_those_of_training(trained: Path) -> None:
    run = read_run(trained)
    stages = compute_stages(run, IMAGES, 3)
    assert stages.refined is not None
    assert stages.pseudo_label is not None
    # The recipe has 10 iterations.
    torch.testing.assert_close(refine_by_iteration(run, stages, (1, 3, 10))[-1], stages.refined)
    tags = {int(k) + 1 for k in IMAGES.labels[3].nonzero()[:, 0]}
    assert {int(value) for value in np.unique(stages.pseudo_label)} <= {UNLABELED, 0} | tags
    assert stages.masks.sum(1).allclose(torch.ones(1))


def test_images_are_evenly_spaced_over_sorted_names() -> None:
    names = ["d", "a", "c", "b", "f", "e"]
    assert [names[index] for index in evenly_spaced(names, 3)] == ["a", "c", "e"]
    assert [names[index] for index in evenly_spaced(names, 99)] == sorted(names)
    assert evenly_spaced([], 3) == []
