"""The repository's own golden values: a clone without the published implementation's files is still tested."""

import json

import numpy as np
import pytest
import torch

from tests.compare import assert_close
from tests.golden.cases import CASES, FOLDER, compute, digest
from tests.models.test_reference import parameter_facts
from tests.published import BACKBONES, published_network


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    values = compute(name)
    with np.load(FOLDER / f"{name}.npz") as golden:
        assert sorted(golden) == sorted(values)
        for key in golden:
            assert_close(values[key], torch.from_numpy(golden[key]))


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("kind", ["ae", "bsl"])
def test_parameters(backbone: str, kind: str) -> None:
    """Names, shapes, frozen sets, resting batch norms and learning-rate groups of the published networks."""
    facts = parameter_facts(published_network(backbone, kind), backbone)
    golden = json.loads((FOLDER / "parameters.json").read_text())[f"{backbone}_{kind}"]
    assert {key: digest(value) for key, value in facts.items()} == golden
