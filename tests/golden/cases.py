"""Small golden values that are part of the repository, computed from generated inputs.

`python -m tests.golden.cases` regenerates them, after checking that this code agrees with the published
implementation's golden values, which must be available.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tagseg
from tagseg.models.gate import GlobalCueInjection, StochasticGate
from tagseg.models.pooling import POOLINGS, with_background
from tagseg.models.segmenter import ASPP
from tests.reference_networks import BACKBONES, fill, reference_network

FOLDER = Path(__file__).parent
Case = Callable[[], dict[str, Tensor]]


def draw(seed: int, *shape: int) -> Tensor:
    """Draw normal values that are the same on every machine and with every version of torch."""
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape).astype(np.float32))


def pamr() -> dict[str, Tensor]:
    image, masks = draw(1, 1, 3, 14, 18).sigmoid(), draw(2, 1, 3, 7, 9).softmax(1)
    return {
        "default": tagseg.pamr(image, masks),
        "small": tagseg.pamr(image, masks, dilations=(1, 2), iterations=3),
        "paper": tagseg.pamr(image, masks, kernel="paper"),
    }


def scores() -> dict[str, Tensor]:
    logits = 3 * draw(3, 2, 4, 9, 7)
    masks = with_background(logits).softmax(1)[:, 1:]
    return {
        **{name: pool(logits, masks) for name, pool in POOLINGS.items()},
        "focal": tagseg.focal_penalty(masks),
        "plain": tagseg.focal_penalty(masks, p=0, lam=0.1),
    }


def self_supervision() -> dict[str, Tensor]:
    masks, logits = (2 * draw(4, 4, 4, 9, 8)).softmax(1), draw(5, 4, 4, 6, 5)
    labels = torch.tensor([[1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1]]).float()
    pseudo = tagseg.pseudo_labels(masks, labels, size=(12, 10))
    losses = {
        weighting: tagseg.self_supervised_loss(logits, pseudo, labels, weighting=weighting, reduction="none")
        for weighting in ("reference", "paper")
    }
    return {"pseudo": pseudo, **losses}


def parts() -> dict[str, Tensor]:
    shallow, deep = draw(6, 1, 16, 4, 5), draw(7, 1, 16, 4, 5)
    return {
        "gate": StochasticGate(0.3).eval()(deep, shallow),
        "gci": fill(GlobalCueInjection(16, 16), prefix="shallow.").eval()(shallow, deep),
        "gci_paper": fill(GlobalCueInjection(16, 16, instance_moments=True), prefix="shallow.").eval()(shallow, deep),
        "aspp": fill(ASPP(16, (12, 24, 36), 8), prefix="aspp.").eval()(deep),
        "merged": tagseg.merge_scales(
            [draw(8, 3, 6, 8).softmax(0), draw(9, 3, 9, 12).softmax(0)],
            (7, 9),
            flipped=[False, True],
            labels=torch.tensor([1, 0]),
        ),
    }


def network(backbone: str, kind: str) -> dict[str, Tensor]:
    out = reference_network(backbone, kind).eval()(draw(10, 1, 3, 49, 65))
    return {"scores": out.scores, "masks": out.masks[:, :, ::6, ::8]}


CASES: dict[str, Case] = {"pamr": pamr, "scores": scores, "self_supervision": self_supervision, "parts": parts}
CASES |= {
    f"network_{backbone}_{kind}": lambda backbone=backbone, kind=kind: network(backbone, kind)  # type: ignore[misc]
    for backbone in BACKBONES
    for kind in ("ae", "bsl")
}


def compute(name: str) -> dict[str, Tensor]:
    """Compute the values of a case."""
    with torch.no_grad():
        return CASES[name]()


def digest(value: object) -> str:
    """Return a short hash of a JSON-serializable value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def write() -> None:
    """Write the values of every case, and the hashes of the networks' parameter groups."""
    from tests.models.test_reference import parameter_summary

    for name in CASES:
        arrays: dict[str, Any] = {key: value.numpy() for key, value in compute(name).items()}
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
    hashes = {
        f"{backbone}_{kind}": {
            key: digest(value) for key, value in parameter_summary(reference_network(backbone, kind), backbone).items()
        }
        for backbone in BACKBONES
        for kind in ("ae", "bsl")
    }
    (FOLDER / "parameters.json").write_text(json.dumps(hashes, indent=1) + "\n")


class _CountSkipped:
    skipped = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.skipped += report.skipped


if __name__ == "__main__":
    count = _CountSkipped()
    if pytest.main(["-q", "-k", "reference", str(FOLDER.parent)], plugins=[count]) or count.skipped:
        sys.exit("not written: this code does not agree with all golden values of the published implementation")
    write()
