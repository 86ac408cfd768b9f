"""Refactoring must not change the losses of a seeded run.

After an intended change of the results, `python -m tests.training.test_expected_losses` rewrites the expected file.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import tagseg
from tagseg.training.logging import read_metrics

EXPECTED = Path(__file__).parent / "expected" / "losses.json"
STEPS = 50
# Over 50 steps, losses differ by 1e-4 between processors; one image of 80 may cross a threshold, or two swap ranks.
TOLERANCES = {"labeled_share": 0.03, "mAP": 1.0}


def measured_losses(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Train for 50 seeded steps on generated images, 20 of them on labels alone, and return the logged losses."""
    tagseg.train(
        "shapes:88",
        out,
        recipe="shapes",
        epochs=10,
        classification_epochs=4,
        precision="fp32",
        lr=1e-4,  # larger steps amplify rounding differences between processors
        val=tagseg.DataSource("shapes:16", split="val"),
        workers=0,
    )
    fields = {
        "train": ("step", "loss", "classification", "segmentation", "labeled_share"),
        "validation": ("step", "loss", "classification", "mAP"),
    }
    return {
        kind: [{key: line[key] for key in keys} for line in read_metrics(out) if line["kind"] == kind]
        for kind, keys in fields.items()
    }


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the expected losses are those of a CPU")
def test_losses_of_a_seeded_run_are_unchanged(tmp_path: Path) -> None:
    expected = json.loads(EXPECTED.read_text())
    measured = measured_losses(tmp_path / "run")
    assert measured["train"][-1]["step"] == STEPS
    for kind, lines in expected.items():
        assert len(measured[kind]) == len(lines)
        for line, reference in zip(measured[kind], lines, strict=True):
            for field, value in reference.items():
                tolerance = TOLERANCES.get(field, 5e-4)
                assert line[field] == pytest.approx(value, abs=tolerance), f"{kind}, step {reference['step']}, {field}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        EXPECTED.write_text(json.dumps(measured_losses(Path(folder) / "run"), indent=1) + "\n")
