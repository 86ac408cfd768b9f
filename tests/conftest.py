"""Fixtures shared by all tests."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

# Triton kernels are tested on the GPU if there is one, otherwise in Triton's interpreter on the CPU, which must be
# enabled before Triton is first imported.
KERNEL_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if KERNEL_DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

# The golden values of the published implementation are not in the repository but in a folder beside the checkout.
REFERENCE = Path(os.environ.get("TAGSEG_REFERENCE", Path(__file__).parents[2] / "shared" / "reference"))

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

Reference = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="session")
def reference() -> Reference:
    """Load a golden file of the published implementation by name, or skip the test if it is absent."""

    def load(name: str) -> dict[str, Any]:
        path = REFERENCE / name
        if not path.is_file():
            pytest.skip(f"no {name} of the published implementation; set TAGSEG_REFERENCE to its folder")
        if path.suffix == ".json":
            return dict(json.loads(path.read_text()))
        with np.load(path) as arrays:
            return {key: torch.from_numpy(arrays[key]) for key in arrays}

    return load


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Use one thread: tests run in two processes on two cores."""
    torch.set_num_threads(1)
