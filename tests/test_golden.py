"""Golden values of the repository, for clones without the published implementation's files."""

import json

import numpy as np
import pytest
import torch

from tests.compare import assert_close
from tests.golden.cases import CASES, FOLDER, compute, digest
from tests.models.test_reference import parameter_summary
from tests.reference_networks import BACKBONES, reference_network


@pytest.mark.parametrize("name", CASES)
def test_values_are_unchanged(name: str) -> None:
    values = compute(name)
    with np.load(FOLDER / f"{name}.npz") as golden:
        assert sorted(golden) == sorted(values)
        for key in golden:
            assert_close(values[key], torch.from_numpy(golden[key]))


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("kind", ["ae", "bsl"])
def test_parameters_are_unchanged(backbone: str, kind: str) -> None:
    """Names, shapes, frozen parameters, frozen batch norms and parameter groups of the published networks."""
    summary = parameter_summary(reference_network(backbone, kind), backbone)
    golden = json.loads((FOLDER / "parameters.json").read_text())[f"{backbone}_{kind}"]
    assert {key: digest(value) for key, value in summary.items()} == golden
