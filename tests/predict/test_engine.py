from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tagseg
from tagseg.errors import ConfigError
from tagseg.predict.engine import PendingBatch
from tagseg.predict.predictor import Predictor
from tests.predict.conftest import KEEP_ALL, wave_image


class OperationCounts(TorchDispatchMode):
    """Count the operations of torch by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def test_number_of_operations_does_not_depend_on_the_batch_size(predictor: Predictor) -> None:
    def count(images: int) -> Counter[str]:
        arrays = [wave_image(48, 64, seed) for seed in range(images)]
        operations = OperationCounts()
        with operations:
            predictions = list(predictor.predict_many(arrays, batch_size=8, tta=True, probabilities=False))
        assert len(predictions) == images
        return operations.counts

    assert count(5) == count(2)


def test_image_and_its_flip_are_one_batch(predictor: Predictor) -> None:
    batch_sizes: list[int] = []
    hook = predictor.engine.runner.register_forward_hook(
        lambda _module, args, _output: batch_sizes.append(len(args[0]))
    )
    list(predictor.predict_many([wave_image(48, 64, seed) for seed in range(3)], batch_size=8, tta=True))
    hook.remove()
    assert batch_sizes == [6] * len(predictor.settings.scales)


def test_network_input_has_at_most_max_pixels() -> None:
    network = tagseg.build_model("resnet18", 2)
    predictor = Predictor(network, KEEP_ALL, device="cpu", precision="float32", max_pixels=256 * 256)
    num_pixels: list[int] = []
    predictor.engine.runner.register_forward_hook(lambda _m, args, _o: num_pixels.append(args[0][:, 0].numel()))
    list(predictor.predict_many([wave_image(140, 200, seed) for seed in range(3)], batch_size=8, tta=True))
    assert max(num_pixels) <= 256 * 256


@pytest.mark.parametrize("step", ["launching", "finishing"])
def test_lack_of_memory_is_one_line(predictor: Predictor, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    if step == "launching":
        monkeypatch.setattr(predictor.engine, "run_tta", fail)
    else:
        monkeypatch.setattr(PendingBatch, "_finish", fail)
    with pytest.raises(ConfigError, match=r"^the GPU has too little memory; lower batch_size= or size=$"):
        predictor.predict(wave_image(48, 64))
