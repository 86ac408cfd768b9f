"""Prediction beside what it cannot do without: the backbone's forward pass over the same images."""

from collections.abc import Callable

import torch

from tagseg.benchmarks.photos import photo_like
from tagseg.benchmarks.timing import Contender, Findings, Table, compare, growth
from tagseg.models.build import build_model
from tagseg.predict.engine import PREDICTED_TAGS, ClassRules, Engine
from tagseg.predict.settings import FixedClasses, InferenceSettings

_BACKBONE, _CLASSES = "resnet50", 20
_HEIGHT, _WIDTH = 375, 500  # as most images of VOC
_KEPT = (3, 7)  # random weights would keep any number of classes; usual images have one or two
_CAREFUL = InferenceSettings()


def bench_predict(device: torch.device) -> Findings:
    """ResNet-50 on images in memory: single scale, the paper's scales and flips, with and without CRF."""
    torch.manual_seed(0)
    engine = Engine(build_model(_BACKBONE, _CLASSES), device=str(device))
    pixels = [100**2, 200**2, 400**2] if device.type == "cpu" else [1000**2, 2000**2, 4000**2]
    return Findings(
        (_one_look(engine), _careful(engine)),
        (
            growth(
                "prediction, single scale",
                "pixels",
                pixels,
                lambda count: _segment(
                    engine, 1, _CAREFUL.for_tta(False), height=round(count**0.5), width=round(count**0.5)
                ),
                device=device,
            ),
        ),
    )


def _one_look(engine: Engine) -> Table:
    count = engine.batch_size
    return compare(
        f"{_BACKBONE}, {_HEIGHT}x{_WIDTH}, single scale",
        [
            Contender("the backbone alone, float32", _backbone_alone(engine, count, half=False), images=count),
            Contender("the backbone alone, bfloat16", _backbone_alone(engine, count, half=True), images=count),
            Contender(
                "prediction, from pixels to mask", _segment(engine, count, _CAREFUL.for_tta(False)), images=count
            ),
        ],
        device=engine.device,
        note="The backbone is as torchvision has it. Prediction computes in "
        f"{'bfloat16' if engine.bfloat16 else 'float32'} here.",
    )


def _careful(engine: Engine) -> Table:
    count = engine.batch_size
    return compare(
        f"{_BACKBONE}, {_HEIGHT}x{_WIDTH}, 4 scales with flips",
        [
            Contender("without CRF", _segment(engine, count, _CAREFUL), images=count),
            Contender("with CRF", _segment(engine, count, _CAREFUL, crf=True), images=count),
        ],
        device=engine.device,
        rounds=2 if engine.device.type == "cpu" else 5,
        note=f"{len(_KEPT)} of {_CLASSES} classes are kept in each image.",
    )


def _backbone_alone(engine: Engine, count: int, *, half: bool) -> Callable[[], object]:
    x = torch.rand(count, 3, _HEIGHT, _WIDTH, device=engine.device)
    backbone = engine.network.backbone.eval()

    @torch.inference_mode()
    def run() -> object:
        with torch.autocast(engine.device.type, dtype=torch.bfloat16, enabled=half):
            return backbone(x)

    return run


def _segment(
    engine: Engine,
    count: int,
    settings: InferenceSettings,
    *,
    crf: bool = False,
    height: int = _HEIGHT,
    width: int = _WIDTH,
) -> Callable[[], object]:
    images = [photo_like(height, width, seed=seed).permute(1, 2, 0).numpy() for seed in range(count)]
    rules: list[ClassRules] = [{PREDICTED_TAGS: FixedClasses(_KEPT)}] * count
    return lambda: engine.submit(images, rules, settings, crf=crf, keep_probs=False).results()
