"""What the method's network and the CAM baseline share: freezing, learning-rate groups, checks of the input."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tagseg.models.backbones import Backbone
from tagseg.models.config import ModelConfig

SMALLEST_SIDE = 32


class Segmentation(NamedTuple):
    """What a network says of a batch of images.

    Attributes:
        scores: a score per class, before the sigmoid, [B, C].
        masks: the classes' masks, background first, [B, 1 + C, H, W] at the images' size.
        logits: scores per pixel at the network's own stride: [B, 1 + C, h, w], background first, for the method;
            [B, C, h, w] for CAM, which has no background score.
    """

    scores: Tensor
    masks: Tensor
    logits: Tensor


class Network(nn.Module):
    """A backbone with a head; knows which of its parameters learn, and how fast.

    A backbone that is fine-tuned keeps its first layers and all its batch norms, statistics and parameters, as they
    were pretrained, and learns at a tenth of the new layers' rate. One that is not learns like the rest.
    """

    mean: Tensor
    std: Tensor
    uses_skip = True

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        # Not part of a saved model: the backbone's name gives them.
        self.register_buffer("mean", torch.tensor(backbone.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(backbone.std)[:, None, None], persistent=False)
        if config.finetune:
            for module in (*backbone.first_layers(), *batch_norms(backbone)):
                module.requires_grad_(False)
        for parameter in backbone.unused_parameters(with_skip=self.uses_skip):
            parameter.requires_grad_(False)  # or training on several GPUs would wait for its gradient

    def normalise(self, images: Tensor) -> Tensor:
        """RGB images in [0, 1], [B, 3, H, W], as the network expects them; a network of one channel sees grey."""
        if self.config.in_channels == 1:
            return (images.mean(1, keepdim=True) - self.mean.mean()) / self.std.mean()
        if self.config.in_channels != 3:
            raise ValueError(f"this network takes {self.config.in_channels} channels, and images have 3")
        return (images - self.mean) / self.std

    def resting_norms(self) -> Iterable[nn.Module]:
        """The batch norms whose statistics do not move in training."""
        return batch_norms(self.backbone) if self.config.finetune else ()

    def train(self, mode: bool = True) -> Self:
        """Switch to training or evaluation; what is frozen stays frozen."""
        super().train(mode)
        for norm in self.resting_norms():
            norm.eval()
        return self

    def parameter_groups(self, lr: float, *, weight_decay: float = 5e-4) -> list[dict[str, Any]]:
        """The optimiser's four groups: old weights, old biases, new weights, new biases.

        New layers learn ten times as fast as the fine-tuned backbone; biases have no weight decay and, in the backbones
        that the paper's authors trained so, learn twice as fast.

        Args:
            lr: the rate of the backbone's weights.
            weight_decay: decay of the weights.
        """
        bias_rate = self.backbone.bias_rate
        groups: dict[tuple[str, str], dict[str, Any]] = {
            (age, kind): {
                "name": f"{age} {kind}",
                "params": [],
                "lr": lr * (10.0 if age == "new" else 1.0) * (bias_rate if kind == "biases" else 1.0),
                "weight_decay": 0.0 if kind == "biases" else weight_decay,
            }
            for age in ("old", "new")
            for kind in ("weights", "biases")
        }
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                age = "old" if self.config.finetune and name.startswith("backbone.") else "new"
                kind = "biases" if name.endswith("bias") else "weights"
                groups[age, kind]["params"].append(parameter)
        return list(groups.values())

    def _check_input(self, x: Tensor) -> None:
        expected = f"[B, {self.config.in_channels}, H, W]"
        if x.dim() != 4 or x.shape[1] != self.config.in_channels:
            raise ValueError(f"images must be {expected}, got a tensor of shape {list(x.shape)}")
        if min(x.shape[-2:]) < SMALLEST_SIDE:
            raise ValueError(
                f"images must be at least {SMALLEST_SIDE} pixels high and wide, got {x.shape[-2]} x {x.shape[-1]}; "
                "enlarge or pad them"
            )


def enlarge(maps: Tensor, size: Sequence[int]) -> Tensor:
    """Resize maps as the published network does everywhere: bilinear, corners aligned."""
    return F.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=True)


def enlarge_in_training(maps: Tensor, size: Sequence[int]) -> Tensor:
    """`enlarge` as two products with small matrices, whose gradient is two products too.

    The gradient of `F.interpolate` is added up pixel by pixel in no fixed order on a GPU: it takes longer than a large
    convolution when compiled, and differs from run to run.
    """
    precise = full_precision(maps)
    rows, columns = (weights_between(small, big, precise) for small, big in zip(maps.shape[-2:], size, strict=True))
    # Autocast would round the weights; the meta device has none.
    with nullcontext() if maps.is_meta else torch.autocast(maps.device.type, enabled=False):
        across = precise.permute(0, 2, 3, 1)  # as it lies in memory in the layout that convolutions prefer
        tall = torch.matmul(rows, across.flatten(2)).unflatten(2, across.shape[2:])
        return torch.matmul(columns, tall).permute(0, 3, 1, 2).to(maps.dtype)


def weights_between(small: int, big: int, like: Tensor) -> Tensor:
    """How much each of `small` points gives to each of `big` ones, evenly spaced over the same line, [big, small]."""
    place = torch.linspace(0, small - 1, big, device=like.device, dtype=torch.float64)[:, None]
    return (1 - (place - torch.arange(small, device=like.device)).abs()).clamp_min(0).to(like.dtype)


def full_precision(maps: Tensor) -> Tensor:
    """Half precision to float32: sums over thousands of pixels need it."""
    return maps.float() if maps.dtype.itemsize < 4 else maps


def batch_norms(module: nn.Module) -> Iterator[nn.Module]:
    """All batch norms below a module."""
    return (child for child in module.modules() if isinstance(child, _BatchNorm))
