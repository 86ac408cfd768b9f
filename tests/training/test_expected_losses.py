"""A refactoring gives the same losses under the same seed.

`python -m tests.training.test_expected_losses` writes the expected file anew, after a change that is meant to change
the results.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import tagseg
from tagseg.training.journal import read_journal

EXPECTED = Path(__file__).parent / "expected" / "losses.json"
STEPS = 50


def measured_losses(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Fifty seeded steps on generated images, on one CPU thread: 20 of classification, 30 of the joint objective."""
    tagseg.train(
        "shapes:88",
        out,
        recipe="shapes",
        changes=["training.epochs=10", "training.classification_epochs=4", "training.precision=fp32"],
        val=tagseg.DataSource("shapes:16", split="val"),
        workers=0,
    )
    wanted = {
        "train": ("step", "loss", "classification", "segmentation", "supervised"),
        "validation": ("step", "loss", "classification", "mAP"),
    }
    return {
        kind: [{key: line[key] for key in keys} for line in read_journal(out) if line["kind"] == kind]
        for kind, keys in wanted.items()
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="the expected losses are a CPU's")
def test_losses_of_a_seeded_run_are_the_committed_ones(tmp_path: Path) -> None:
    expected = json.loads(EXPECTED.read_text())
    measured = measured_losses(tmp_path / "run")
    assert measured["train"][-1]["step"] == STEPS
    for kind, lines in expected.items():
        assert len(measured[kind]) == len(lines)
        for line, reference in zip(measured[kind], lines, strict=True):
            # Other processors multiply in another order: 50 steps let that grow to about 1e-4.
            assert line == pytest.approx(reference, rel=2e-3, abs=2e-3), f"{kind}, step {reference['step']}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        EXPECTED.write_text(json.dumps(measured_losses(Path(folder) / "run"), indent=1) + "\n")
