"""What runs on this machine: versions, device, fast paths, extras, and self-tests in seconds.

The text is Markdown for an issue; it holds no path and no name of a user or machine.
"""

import json
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tagseg._device import can_compile, multiplies_bfloat16, pick_device, triton_obstacle
from tagseg._markdown import markdown_table
from tagseg.benchmarks.report import describe_machine, package_versions
from tagseg.predict import load
from tagseg.refine import dense_crf, pamr

# fmt: off
_PACKAGES = (
    "tagseg", "torch", "torchvision", "timm", "triton", "accelerate", "safetensors", "numpy", "pillow", "pydantic",
    "typer", "rich",
)
# Extra -> module that it installs, and what it is for.
EXTRAS = {
    "app": ("gradio", "the page of tagseg app"),
    "coco": ("pycocotools", "reading COCO's polygons and run lengths"),
    "hf": ("pyarrow", "datasets of Hugging Face: Arrow and Parquet files"),
    "heif": ("pillow_heif", "HEIC images"),
    "video": ("cv2", "frames of videos in tagseg predict"),
    "ray": ("ray", "prediction on a cluster: --ray"),
    "tracking": ("tensorboard", "TensorBoard logs of a training run"),
    "bench": ("pydensecrf", "the CRF authors' code in tagseg bench crf"),
    "onnx": ("onnxruntime", "ONNX files: tagseg export, and predict -m model.onnx"),
    "docs": ("mkdocs", "building the documentation, and its notebooks"),
    "stage2": ("segmentation_models_pytorch", "its architectures in tagseg train-masks"),
}
# Golden values: every 307th value of a result, and the mask of a photo by the default model, computed when
# this code reproduced the golden values in tests/golden.
_STEP = 307
_PAMR = (0.10447, 0.17307, 0.20726, 0.43927, 0.31896, 0.16212, 0.19552, 0.26535, 0.19808, 0.2036, 0.25895)
_CRF = (0.00005, 0.4418, 0.34153, 0.00859, 0.38097, 0.00041, 0.13134, 0.00585, 0.00144, 0.06948, 0.00001)
_PHOTO, _CLASS, _SCORE, _SHARE = Path(__file__).parent / "photos" / "chelsea.jpg", "cat", 0.99, 0.759
# fmt: on
_TOLERANCE, _PHOTO_TOLERANCE = 1e-3, 0.01  # of float32, and of a network in bfloat16


@dataclass(frozen=True)
class FastPath:
    """A job with several implementations.

    Attributes:
        name: Job.
        runs: Implementation that runs on the device.
        reason: Why not a faster one; empty if there is none.
    """

    name: str
    runs: str
    reason: str


@dataclass(frozen=True)
class SelfTest:
    """Result of a self-test.

    Attributes:
        name: What was tested.
        passed: Whether its result is the expected one.
        result: Result in words.
        advice: What to do if it failed.
    """

    name: str
    passed: bool
    result: str
    advice: str


@dataclass(frozen=True)
class Diagnosis:
    """What runs on this machine.

    Attributes:
        machine: Processor, cores, memory, GPU.
        versions: Versions of Python and of the packages that results depend on.
        fast_paths: Jobs with several implementations.
        extras: Optional extras, and whether each is installed.
        self_tests: Results of the self-tests.
    """

    machine: dict[str, Any]
    versions: dict[str, str]
    fast_paths: tuple[FastPath, ...]
    extras: dict[str, bool]
    self_tests: tuple[SelfTest, ...]

    @property
    def passed(self) -> bool:
        """Whether all self-tests passed."""
        return all(test.passed for test in self.self_tests)

    def to_json(self) -> str:
        """Diagnosis as JSON."""
        return json.dumps(asdict(self), indent=1)

    def to_markdown(self) -> str:
        """Diagnosis as Markdown that reads well as plain text."""
        machine = self.machine
        parts = [
            ", ".join(f"{name} {number}" for name, number in self.versions.items()),
            f"{machine['system']}, {machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
            f"device {machine.get('gpu') or machine['device']}",
            markdown_table(
                ("fast path", "runs here", "why not a faster one"),
                [(p.name, p.runs, p.reason) for p in self.fast_paths],
            ),
            markdown_table(
                ("extra", "here", "enables"),
                [
                    (name, "installed" if is_installed else f"pip install 'tagseg[{name}]'", EXTRAS[name][1])
                    for name, is_installed in self.extras.items()
                ],
            ),
            markdown_table(
                ("self-test", "passed", "result"),
                [(test.name, "yes" if test.passed else "NO", test.result) for test in self.self_tests],
            ),
            *(f"{test.name} failed: {test.advice}." for test in self.self_tests if not test.passed),
        ]
        return "\n\n".join(parts)


def diagnose(device: str = "auto") -> Diagnosis:
    """Find out what runs on a device, and test it.

    Args:
        device: A torch device by name; `auto` is the first GPU if there is one.
    """
    place = pick_device(device)
    return Diagnosis(
        {"system": f"{platform.system()} {platform.machine()}", **describe_machine(place)},
        {**package_versions(_PACKAGES), "GPU platform of torch": torch.version.cuda or torch.version.hip or "none"},
        tuple(_fast_paths(place)),
        {name: find_spec(module) is not None for name, (module, _) in EXTRAS.items()},
        tuple(_run(name, test, place) for name, test in _SELF_TESTS.items()),
    )


def _fast_paths(device: torch.device) -> Iterator[FastPath]:
    """What runs on a device, as `pamr`, `dense_crf`, `Engine` and the training loop choose it."""
    obstacle, on_cpu = triton_obstacle(device), device.type == "cpu"
    refinement = "Triton" if not obstacle else "blocks for a CPU's caches" if on_cpu else "plain torch"
    yield FastPath("PAMR", refinement, obstacle)
    yield FastPath("dense CRF", refinement, obstacle)
    yield FastPath("convolutions (predict)", "batch norms folded" if obstacle else "folded and fused, Triton", obstacle)
    lacks = ""
    if not multiplies_bfloat16(device):
        lacks = f"the {'CPU' if on_cpu else 'GPU'} does not multiply it natively"
    yield FastPath("bfloat16 (predict)", "float32" if lacks else "bfloat16", lacks)
    yield FastPath("torch.compile (long training)", "compiled" if can_compile(device) else "not compiled", obstacle)


def _run(name: str, test: Callable[[torch.device], tuple[bool, str]], device: torch.device) -> SelfTest:
    try:
        passed, result = test(device)
    except Exception as error:  # its message may name paths; the place in the code does not
        frame, line = list(walk_tb(error.__traceback__))[-1]
        passed, result = False, f"{type(error).__name__} in {frame.f_globals.get('__name__')}, line {line}"
    advice = "install tagseg into a new environment; if that fails too, open an issue with this text"
    if device.type != "cpu":
        advice = f"use --device cpu, update the driver of the GPU, or {advice}"
    return SelfTest(name, passed, result, "" if passed else advice)


def _refine(device: torch.device) -> tuple[bool, str]:
    image, masks = _scene()
    return _compare(pamr((image / 255)[None].to(device), masks[None].to(device)), _PAMR)


def _infer(device: torch.device) -> tuple[bool, str]:
    image, masks = _scene()
    return _compare(dense_crf(image.to(device), masks.to(device), iterations=1), _CRF)


def _predict(device: torch.device) -> tuple[bool, str]:
    model = load(device=str(device))
    prediction = model.predict(_PHOTO, size=256)
    share = float((prediction.mask == 1 + model.classes.index(_CLASS)).mean())
    score = prediction.scores[_CLASS]
    passed = max(abs(score - _SCORE), abs(share - _SHARE)) <= _PHOTO_TOLERANCE
    return passed, f"{_CLASS} {score:.1%} on {share:.1%} of the photo; expected {_SCORE:.1%} on {_SHARE:.1%}"


_SELF_TESTS = {"PAMR": _refine, "dense CRF": _infer, "default model": _predict}


def _scene() -> tuple[Tensor, Tensor]:
    """A noisy image of four colored quarters [3, H, W] of 8 bits, and random masks of four classes [4, H, W]."""
    random = np.random.RandomState(0)
    quarters = random.randint(0, 256, (3, 2, 2)).repeat(12, 1).repeat(16, 2)
    image = (quarters + random.randint(-12, 13, quarters.shape)).clip(0, 255).astype(np.uint8)
    masks = random.uniform(0, 1, (4, *image.shape[1:])) ** 3
    return torch.from_numpy(image), torch.from_numpy((masks / masks.sum(0)).astype(np.float32))


def _compare(values: Tensor, golden: tuple[float, ...]) -> tuple[bool, str]:
    difference = float((values.flatten()[::_STEP].cpu() - torch.tensor(golden)).abs().max())
    return difference <= _TOLERANCE, f"differs from the expected values by {difference:.1e} at most"
