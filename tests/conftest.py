"""Fixtures that every test may use."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

# Triton's kernels are tested where they run: on the GPU if there is one, otherwise in Triton's interpreter on the CPU,
# which has to be asked for before Triton is first imported.
KERNEL_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if KERNEL_DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"

# The golden values of the published implementation are not in the repository; a folder beside the checkout has them.
REFERENCE = Path(os.environ.get("TAGSEG_REFERENCE", Path(__file__).parents[2] / "shared" / "reference"))

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

Reference = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="session")
def reference() -> Reference:
    """A golden file of the published implementation by name; the test is skipped where the files are absent."""

    def load(name: str) -> dict[str, Any]:
        path = REFERENCE / name
        if not path.is_file():
            pytest.skip(f"{name} of the published implementation is not here; TAGSEG_REFERENCE names its folder")
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
    """Tests run in two processes on two cores; more threads would only wait for each other."""
    torch.set_num_threads(1)
