"""Export a model, for images of any number and size: `tagseg.export_model`, `tagseg export`.

tagseg export -m runs/photos model.onnx
tagseg export -m runs/photos model.pt2

Both hold a function from RGB images in [0, 1], [B, 3, H, W], to `scores` after the sigmoid, [B, C], `masks`, background
first, [B, 1 + C, H, W], and `logits`, the scores of each pixel at the network's stride. Normalization and temperature
are inside. The metadata holds what model.safetensors holds: the configuration with the class names, and the settings
of inference with the thresholds and the working size.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tagseg._files import make_folder, remove_parts_of, write_atomically
from tagseg._progress import ProgressBar
from tagseg._version import __version__
from tagseg.errors import ConfigError, WeightsError, first_line, unknown_name
from tagseg.models.base import SMALLEST_SIDE, Network, copy_network
from tagseg.models.serialization import config_metadata
from tagseg.models.supervised import segmentation
from tagseg.predict.onnx_network import INPUT, MAX_BYTES, ONNX_SUFFIX, OUTPUTS, OnnxNetwork, import_onnx
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import NOTE, InferenceSettings

PROGRAM_SUFFIX = ".pt2"
SUFFIXES = (ONNX_SUFFIX, PROGRAM_SUFFIX)
_LARGEST_SIDE, _LARGEST_BATCH = 2**14, 2**12
# The graph is made from images of the first shape and compared with torch on all: odd and even, small, wide and high.
_SHAPES = ((2, 118, 186), (1, 64, 64), (1, 101, 67), (3, 33, 130), (1, 160, 96))
_TOLERANCE = 1e-3  # of probabilities


def write_export(predictor: Predictor, path: Path, *, overwrite: bool = False, progress: bool = False) -> Path:
    """Write a model to an ONNX file, or to a program of `torch.export`.

    The file is compared with torch on images of five sizes before it gets its name.

    Args:
        predictor: The model.
        path: File to write; its suffix is .onnx or .pt2.
        overwrite: Replace a file of that name.
        progress: Show the progress on stderr.

    Returns:
        The path.

    Raises:
        ConfigError: The path has another suffix or exists, or the network has no graph for images of any size.
    """
    check_target(path, overwrite=overwrite)
    if isinstance(predictor.engine.network, OnnxNetwork):
        raise ConfigError("an exported model cannot be exported again", "name the model it was exported from")
    if path.suffix == ONNX_SUFFIX:
        import_exporter()
    make_folder(path.parent)
    remove_parts_of(path)
    graph = _Graph(predictor.engine.network, predictor.settings).eval()
    metadata = {**config_metadata(graph.network), NOTE: _settings_per_class(predictor).to_json()}
    with ProgressBar(f"Exporting {path.name}", quiet=not progress):
        program = _trace(graph, predictor.description["backbone"])
        content = (_onnx_bytes if path.suffix == ONNX_SUFFIX else _program_bytes)(program, graph, metadata)

        def write(part: Path) -> None:
            part.write_bytes(content)
            _compare(_runner(part, path.suffix), graph)

        write_atomically(path, write)
    return path


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse a suffix that is not known, and a file that exists."""
    if path.suffix not in SUFFIXES:
        raise unknown_name("suffix of an export", path.suffix or path.name, SUFFIXES)
    if path.exists() and not overwrite:
        raise ConfigError(f"{path}: exists", "choose another name, or replace it by {overwrite}")


def import_exporter() -> None:
    """Raise a `ConfigError` unless all that writes ONNX is installed."""
    import_onnx("writing")
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise ConfigError("writing an ONNX file needs onnxscript", "install it: pip install 'tagseg[onnx]'") from None


class _Graph(nn.Module):
    """What is exported: a network in float32 on the CPU, with all that comes before and after it."""

    def __init__(self, network: Network, settings: InferenceSettings) -> None:
        super().__init__()
        self.network = copy_network(network).cpu().float().eval().requires_grad_(False)
        self.temperature, self.background = settings.temperature, settings.background

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        output = self.network(self.network.normalize(images))
        masks, scores = output.masks, output.scores
        if self.temperature != 1:
            scores, masks, *_ = segmentation(output.logits / self.temperature, images.shape[-2:])
        if self.background is not None:
            masks = torch.cat([torch.full_like(masks[:, :1], self.background), masks[:, 1:]], 1)
        return scores.sigmoid(), masks, output.logits


def _settings_per_class(predictor: Predictor) -> InferenceSettings:
    """Settings with a threshold for each class, so that a reader of the file needs no second case."""
    settings = predictor.settings
    return replace(settings, thresholds=settings.thresholds_per_class(len(predictor.classes)))


def _trace(graph: _Graph, backbone: str) -> torch.export.ExportedProgram:
    """Trace the graph with symbols in place of the number of images and their sides."""
    automatic: Any = torch.export.Dim.AUTO  # a fixed range would refuse what torch cannot prove for all of it
    side = automatic(min=SMALLEST_SIDE, max=_LARGEST_SIDE)
    shapes = {"images": {0: automatic(min=1, max=_LARGEST_BATCH), 2: side, 3: side}}
    try:
        with _integer_padding(), _quiet(), torch.no_grad():
            return torch.export.export(graph, (_images(_SHAPES[0]),), dynamic_shapes=shapes, strict=False)
    except Exception as error:  # any code of a network may raise here
        raise ConfigError(
            f"{backbone} cannot be exported for images of any size ({first_line(error)[:200]})",
            "newer versions of torch and timm may do it; use another backbone otherwise",
        ) from error


def _onnx_bytes(program: torch.export.ExportedProgram, graph: _Graph, metadata: Mapping[str, str]) -> bytes:
    onnx, _ = import_onnx("writing")
    size = sum(tensor.numel() * tensor.element_size() for tensor in graph.state_dict().values())
    if size > 0.99 * MAX_BYTES:
        raise ConfigError(
            f"the weights have {size / 2**30:.1f} GiB, and an ONNX file has at most 2", "export to a .pt2 file"
        )
    try:
        with _quiet():
            exported = torch.onnx.export(
                program, input_names=[INPUT], output_names=list(OUTPUTS), dynamo=True, verbose=False
            )
        assert exported is not None
        model = exported.model_proto
    except Exception as error:
        raise ConfigError(
            f"this network cannot be written as ONNX ({first_line(error)[:200]})",
            "use newer versions of torch and onnxscript, or export to a .pt2 file",
        ) from error
    # The exporter notes where in the code a node comes from, with the paths of this machine.
    for part in (model.graph, *model.graph.node, *model.graph.input, *model.graph.output, *model.graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    del model.graph.value_info[:]
    axes = {INPUT: ("batch", None, "height", "width"), "scores": ("batch", None)}
    axes |= {"masks": axes[INPUT], "logits": ("batch", None, "logits_height", "logits_width")}
    for value in (*model.graph.input, *model.graph.output):
        for dimension, name in zip(value.type.tensor_type.shape.dim, axes[value.name], strict=True):
            if name is not None:
                dimension.dim_param = name
    model.producer_name, model.producer_version = "tagseg", __version__
    onnx.helper.set_model_props(model, dict(metadata))
    return bytes(model.SerializeToString(deterministic=True))


def _program_bytes(program: torch.export.ExportedProgram, _: _Graph, metadata: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files=dict(metadata))
    return buffer.getvalue()


def _runner(path: Path, suffix: str) -> Callable[[Tensor], Sequence[Tensor]]:
    """Function of an exported file, which is read again."""
    if suffix == ONNX_SUFFIX:
        return OnnxNetwork(path).run
    return torch.export.load(io.BytesIO(path.read_bytes())).module()


@torch.inference_mode()
def _compare(run: Callable[[Tensor], Sequence[Tensor]], graph: _Graph) -> None:
    """Raise a `WeightsError` unless a file gives torch's scores and masks at every size, not only at one."""
    for shape in _SHAPES:
        images = _images(shape)
        try:
            outputs = run(images)
        except Exception as error:
            raise _mismatch(shape, first_line(error)[:200]) from error
        for name, output, expected in zip(OUTPUTS[:2], outputs, graph(images), strict=False):
            difference = float((output - expected).abs().max()) if output.shape == expected.shape else float("inf")
            if not difference <= _TOLERANCE:
                raise _mismatch(shape, f"{name} differ by {difference:.1g}")


def _mismatch(shape: tuple[int, int, int], reason: str) -> WeightsError:
    return WeightsError(
        f"the exported network does not give torch's result for images of {shape[2]} x {shape[1]} pixels ({reason})",
        "nothing was written; newer versions of torch, onnxscript and onnxruntime may do it",
    )


def _images(shape: tuple[int, int, int]) -> Tensor:
    count, height, width = shape
    return torch.rand(count, 3, height, width, generator=torch.Generator().manual_seed(height))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's warnings to itself, which are about its own code; what it gets wrong `_compare` finds."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _integer_padding() -> Iterator[None]:
    """Let timm compute TensorFlow's padding in integers: its `math.ceil` of a symbol cannot be saved."""
    from timm.layers import padding as module

    padding: Any = module  # its annotation of the side is another

    def same_padding(side: int, kernel: int, stride: int, dilation: int) -> int:
        extra = (kernel - 1) * dilation + 1 - stride
        return -side % stride + extra if extra >= 0 else max(-side % stride + extra, 0)

    original = padding.get_same_padding
    padding.get_same_padding = same_padding
    try:
        yield
    finally:
        padding.get_same_padding = original
