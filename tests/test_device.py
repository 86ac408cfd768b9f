import pytest
import torch

from tagseg._device import can_compile, pick_device, triton_available, triton_obstacle
from tagseg.errors import ConfigError


def test_known_devices_are_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for name in ("cpu", "cuda", "cuda:1"):
        assert pick_device(name) == torch.device(name)


@pytest.mark.parametrize(
    ("name", "gpus", "message"),
    [
        ("gpu", 0, "unknown device 'gpu'; known: auto, cpu, cuda, cuda:1 and so on, mps, xpu"),
        ("meta", 0, "unknown device 'meta'; known: auto"),
        ("cuda", 0, "device 'cuda' is not available: torch sees no GPU here; use auto or cpu"),
        ("cuda:1", 1, "device 'cuda:1' is not available: torch sees 1 GPU here; use auto or cpu"),
        ("cuda:9", 2, "device 'cuda:9' is not available: torch sees 2 GPUs here; use auto or cpu"),
    ],
)
def test_other_devices_are_refused(name: str, gpus: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    with pytest.raises(ConfigError, match=message):
        pick_device(name)


@pytest.mark.parametrize("error", [NotImplementedError, RuntimeError, AssertionError])
@pytest.mark.parametrize("name", ["mps", "xpu"])
def test_devices_that_torch_cannot_use_are_refused(
    name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error("not compiled for it")

    monkeypatch.setattr("torch.empty", refuse)
    with pytest.raises(ConfigError, match=f"device '{name}' is not available: torch cannot use it here; use auto"):
        pick_device(name)


def test_cpu_has_no_triton() -> None:
    assert not can_compile(torch.device("cpu"))
    assert not triton_available(torch.zeros(1))
    assert triton_obstacle(torch.device("cpu"))
