import numpy as np
import pytest
import torch

import tagseg
from tagseg.benchmarks.predict import _predictor, compare_first_passes, compare_runtimes
from tagseg.benchmarks.synthetic_images import photo_array
from tagseg.predict.settings import InferenceSettings

CPU = torch.device("cpu")


def test_every_variant_predicts_the_same_mask() -> None:
    torch.manual_seed(0)
    network = tagseg.build_model("test_resnet", 20, width=16)
    image = photo_array(64, 96)
    plain, folded = (_predictor(network, CPU, passes).predict(image) for passes in ((), ("fold",)))
    assert (plain.mask == folded.mask).mean() > 0.99
    assert np.allclose(list(plain.scores.values()), list(folded.scores.values()), atol=0.01)


def test_first_passes_use_new_sizes_in_every_round() -> None:
    network = tagseg.build_model("test_resnet", 20, width=16)
    predictors = {
        "plain torch": _predictor(network, CPU, ()),
        "+ folded batch norm": _predictor(network, CPU, ("fold",)),
    }
    seeds: list[int] = []

    def sizes(count: int, *, seed: int) -> list[tuple[int, int]]:
        seeds.append(seed)
        return [(32, 40 + seed)] * count

    table = compare_first_passes(predictors, CPU, count=2, rounds=3, sizes=sizes)
    assert seeds == [0, 1, 2]
    assert [row.name for row in table.rows] == list(predictors)
    assert all(len(row.rounds) == 3 and row.images == 2 for row in table.rows)


@pytest.mark.slow
def test_onnx_runtime_is_timed_beside_torch() -> None:
    network = tagseg.build_model("test_resnet", 20, width=16)
    table = compare_runtimes(network, InferenceSettings(size=64, thresholds=0.0))
    first, *_, last = table.rows
    assert (first.name, last.name) == ("torch, float32", "ONNX Runtime, float32")
    assert first.extra_bytes
    assert last.extra_bytes is None  # torch does not know what ONNX Runtime allocates
