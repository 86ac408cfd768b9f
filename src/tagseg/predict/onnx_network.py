"""A network in an ONNX file of `tagseg export`: ONNX Runtime runs it on the CPU, in place of torch.

It takes the place of a network in `Engine`, so that tiles, test-time augmentation, thresholds and CRF are those of
every other model.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tagseg.data.limits import read_file
from tagseg.errors import ConfigError, DataError, WeightsError, first_line
from tagseg.models.base import Network, Segmentation, enlarge
from tagseg.models.serialization import config_from_metadata
from tagseg.models.supervised import segmentation
from tagseg.predict.settings import InferenceSettings, settings_from_notes

INPUT = "images"  # RGB in [0, 1], [B, 3, H, W]
OUTPUTS = ("scores", "masks", "logits")  # after the sigmoid [B, C], [B, 1 + C, H, W], and at the network's stride
MAX_BYTES = 2**31 - 1  # of a protobuf message, which an ONNX file is
ONNX_SUFFIX = ".onnx"
_STANDARD_DOMAINS = ("", "ai.onnx")
_EXPORT_AGAIN = "export the model again with this version of tagseg"


class OnnxNetwork(Network):
    """A network that ONNX Runtime runs; it cannot be trained.

    Attributes:
        settings: Inference settings in the file.

    Args:
        path: The ONNX file.

    Raises:
        WeightsError: The file was not written by `tagseg export`, is damaged, or refers to other files.
        ConfigError: ONNX Runtime is not installed.
    """

    settings: InferenceSettings
    digest: Tensor

    def __init__(self, path: Path) -> None:
        nn.Module.__init__(self)  # there is no backbone
        onnx, runtime = import_onnx("reading")
        try:
            content = read_file(path, MAX_BYTES)
            model = onnx.load_model_from_string(content)
        except DataError as error:
            raise WeightsError(error.problem, "an ONNX file has at most 2 GiB") from None
        except Exception:  # a damaged file can raise anything
            raise WeightsError(f"{path} is not a readable ONNX file", _EXPORT_AGAIN) from None
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        try:
            self.config = config_from_metadata(metadata, path)
        except ConfigError as error:
            raise WeightsError(
                f"{path} is not a model of this version of tagseg: {error.problem}", error.advice
            ) from None
        self.settings = settings_from_notes(metadata, path, self.config)
        if obstacle := next(_obstacles(model.graph, bool(model.functions)), None):
            raise WeightsError(f"{path}: is not as tagseg export writes it: {obstacle}", _EXPORT_AGAIN)
        del model
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # what fails is raised too
        try:
            # From its content, not its path: nothing beside the file is read.
            self._session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of ONNX Runtime, which has no common base
            reason = first_line(error)[:200]
            raise WeightsError(f"{path}: ONNX Runtime cannot read it ({reason})", _EXPORT_AGAIN) from None
        self._run_options = runtime.RunOptions()
        self._run_options.only_execute_path_to_fetches = True
        self._path, self._name = path, str(path)
        self.register_buffer("mean", torch.zeros(3, 1, 1), persistent=False)
        # The only entry of the state, so that `fingerprint` tells the file from others.
        digest = hashlib.blake2b(content, digest_size=16).digest()
        self.register_buffer("digest", torch.from_numpy(np.frombuffer(digest, np.uint8).copy()))
        self.training = False

    def __reduce__(self) -> tuple[type["OnnxNetwork"], tuple[Path]]:
        """Pickle the path: a session of ONNX Runtime cannot be copied."""
        return OnnxNetwork, (self._path,)

    def check_device(self, device: str, precision: str) -> torch.device:
        """The CPU; other devices and precisions are refused."""
        if device not in ("auto", "cpu"):
            raise ConfigError(
                f"{self._name}: tagseg runs ONNX files on the CPU, not on {device}",
                "use auto or cpu, or the model from which the file was exported",
            )
        if precision == "bfloat16":
            raise ConfigError(f"{self._name}: an ONNX file of tagseg runs in float32", "leave the precision out")
        return torch.device("cpu")

    def frozen_norms(self) -> Iterable[nn.Module]:
        """None: no module of torch is left."""
        return ()

    def normalize(self, images: Tensor) -> Tensor:
        """The images as they are: the graph normalizes them."""
        return images

    def forward(self, x: Tensor, *, full_size: bool = True) -> Segmentation:
        """Segment images in [0, 1], as `Segmenter.forward` does."""
        if self.config.method == "cam":
            scores, masks, logits = self.run(x)
            return Segmentation(scores.logit(), masks, logits)
        if self.config.method == "supervised":
            (logits,) = self.run(x, ("logits",))
            return segmentation(logits, x.shape[-2:] if full_size else None)
        scores, logits = self.run(x, ("scores", "logits"))
        masks = logits.softmax(1)
        return Segmentation(scores.logit(), enlarge(masks, x.shape[-2:]) if full_size else masks, logits)

    def run(self, x: Tensor, names: Sequence[str] = OUTPUTS) -> list[Tensor]:
        """Compute some of the graph's outputs for images in [0, 1]."""
        try:
            arrays = self._session.run(names, {INPUT: np.ascontiguousarray(x.numpy())}, self._run_options)
        except Exception as error:
            raise WeightsError(
                f"{self._name}: ONNX Runtime cannot run it on images of {x.shape[-1]} x {x.shape[-2]} pixels "
                f"({first_line(error)[:200]})",
                _EXPORT_AGAIN,
            ) from None
        num_classes = self.config.num_classes
        # CAM has no score of the background in a pixel.
        channels = {
            "scores": (num_classes,),
            "masks": (1 + num_classes,),
            "logits": (num_classes, 1 + num_classes),
        }
        for name, array in zip(names, arrays, strict=True):
            if array.dtype != np.float32 or len(array) != len(x) or array.shape[1] not in channels[name]:
                raise WeightsError(
                    f"{self._name}: its output {name} is not that of {num_classes} classes", _EXPORT_AGAIN
                )
        return [torch.from_numpy(array) for array in arrays]


def import_onnx(purpose: str) -> tuple[Any, Any]:
    """Import onnx and onnxruntime.

    Args:
        purpose: What they are needed for, for the error.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise ConfigError(
            f"{purpose} an ONNX file needs onnx and onnxruntime", "install them with: pip install 'tagseg[onnx]'"
        ) from None
    return onnx, onnxruntime


def _obstacles(graph: Any, has_functions: bool) -> Iterator[str]:
    """What a graph has that no export has: data in other files, loops, operators that are no standard ones."""
    if has_functions:
        yield "it defines functions"
    tensors = [*graph.initializer, *(part for s in graph.sparse_initializer for part in (s.values, s.indices))]
    for node in graph.node:
        if node.domain not in _STANDARD_DOMAINS:
            yield f"it has operators of {node.domain}"
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:
                yield f"it has a {node.op_type}"
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                yield "it has sparse tensors"
            tensors += [attribute.t, *attribute.tensors]
    if any(tensor.data_location or tensor.external_data for tensor in tensors):
        yield "its weights are in other files"
    if [value.name for value in graph.input] != [INPUT] or [value.name for value in graph.output] != list(OUTPUTS):
        yield f"its inputs and outputs are not {INPUT} and {', '.join(OUTPUTS)}"
