"""What the segmenter and the CAM baseline share: normalization, frozen layers, learning-rate groups, input checks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tagseg.models.backbones import Backbone
from tagseg.models.config import ModelConfig

SMALLEST_SIDE = 32
HEAD_RATE = 10.0  # learning rate of the head, as a multiple of the fine-tuned backbone's


class Segmentation(NamedTuple):
    """Output of a network for a batch of images.

    Attributes:
        scores: Class scores before the sigmoid, [B, C].
        masks: Class masks, background first, [B, 1 + C, H, W].
        logits: Class scores per pixel at the network's stride: [B, 1 + C, h, w] with the background first for the
            method, [B, C, h, w] for CAM, which has no background score.
        tokens: Last tokens of a vision transformer, [B, D, h, w]; None for other backbones.
    """

    scores: Tensor
    masks: Tensor
    logits: Tensor
    tokens: Tensor | None = None


class Network(nn.Module):
    """Base class of the networks: a backbone with a head.

    Fine-tuning (`config.finetune`) freezes the backbone's first layers and all of its batch norms, statistics and
    parameters alike, and trains the rest of it at a tenth of the head's learning rate. Otherwise the backbone learns
    like the head.

    Args:
        config: Options of the network; automatic values are resolved.
        backbone: Backbone with its initial weights.
    """

    mean: Tensor
    std: Tensor
    uses_skip = True
    classifier_name: str  # of the last convolution, with a channel for each class

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config.resolve()
        self.backbone = backbone
        # The backbone's name determines them, so they are not part of a saved model.
        self.register_buffer("mean", torch.tensor(backbone.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(backbone.std)[:, None, None], persistent=False)
        if self.config.finetune:
            for norm in batch_norms(backbone):
                norm.requires_grad_(False)
            for parameter in backbone.frozen_parameters():
                parameter.requires_grad_(False)
        # DistributedDataParallel waits for the gradient of every parameter that requires one.
        for parameter in backbone.unused_parameters(with_skip=self.uses_skip):
            parameter.requires_grad_(False)

    def normalize(self, images: Tensor) -> Tensor:
        """Normalize RGB images in [0, 1], [B, 3, H, W]; a network with one input channel gets gray images."""
        if self.config.in_channels == 1:
            return (images.mean(1, keepdim=True) - self.mean.mean()) / self.std.mean()
        if self.config.in_channels != 3:
            raise ValueError(f"this network takes {self.config.in_channels} channels, and images have 3")
        return (images - self.mean) / self.std

    def frozen_norms(self) -> Iterable[nn.Module]:
        """Batch norms whose statistics do not change in training."""
        return batch_norms(self.backbone) if self.config.finetune else ()

    def train(self, mode: bool = True) -> Self:
        """Switch to training or evaluation mode; frozen batch norms stay in evaluation mode."""
        super().train(mode)
        for norm in self.frozen_norms():
            norm.eval()
        return self

    def parameter_groups(self, lr: float, *, weight_decay: float = 5e-4) -> list[dict[str, Any]]:
        """Optimizer groups: backbone weights, backbone biases, head weights, head biases.

        The head learns ten times as fast as a fine-tuned backbone. Biases have no weight decay, and learn twice as
        fast with the backbones that the paper's authors trained so.

        Args:
            lr: Learning rate of the backbone's weights.
            weight_decay: Weight decay of the weights.
        """
        bias_rate = self.backbone.bias_rate
        groups: dict[tuple[str, str], dict[str, Any]] = {
            (part, kind): {
                "name": f"{part} {kind}",
                "params": [],
                "lr": lr * (HEAD_RATE if part == "head" else 1.0) * (bias_rate if kind == "biases" else 1.0),
                "weight_decay": 0.0 if kind == "biases" else weight_decay,
            }
            for part in ("backbone", "head")
            for kind in ("weights", "biases")
        }
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                part = "backbone" if self.config.finetune and name.startswith("backbone.") else "head"
                kind = "biases" if name.endswith("bias") else "weights"
                groups[part, kind]["params"].append(parameter)
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
    """Resize maps, [B, C, h, w], bilinearly with aligned corners, as the published network does everywhere."""
    return F.interpolate(maps, size=tuple(size), mode="bilinear", align_corners=True)


def enlarge_in_training(maps: Tensor, size: Sequence[int]) -> Tensor:
    """`enlarge` as two matrix products, so that its gradient is two matrix products too.

    On a GPU the gradient of `F.interpolate` uses atomic additions: compiled it takes longer than a large convolution,
    and it differs from run to run.
    """
    precise = full_precision(maps)
    rows, columns = (
        interpolation_matrix(small, large, precise) for small, large in zip(maps.shape[-2:], size, strict=True)
    )
    # Autocast would round the matrices; the meta device has no autocast.
    with nullcontext() if maps.is_meta else torch.autocast(maps.device.type, enabled=False):
        channels_last = precise.permute(0, 2, 3, 1)  # the memory layout of the convolutions
        tall = torch.matmul(rows, channels_last.flatten(2)).unflatten(2, channels_last.shape[2:])
        return torch.matmul(columns, tall).permute(0, 3, 1, 2).to(maps.dtype)


def interpolation_matrix(small: int, large: int, like: Tensor) -> Tensor:
    """Weights of linear interpolation from `small` to `large` points with aligned ends, [large, small]."""
    position = torch.linspace(0, small - 1, large, device=like.device, dtype=torch.float64)[:, None]
    return (1 - (position - torch.arange(small, device=like.device)).abs()).clamp_min(0).to(like.dtype)


def full_precision(maps: Tensor) -> Tensor:
    """Convert half precision to float32, which sums over thousands of pixels need."""
    return maps.float() if maps.dtype.itemsize < 4 else maps


def batch_norms(module: nn.Module) -> Iterator[nn.Module]:
    """All batch norms of a module."""
    return (child for child in module.modules() if isinstance(child, _BatchNorm))


def copy_network(network: Network) -> Network:
    """Copy a network with its weights."""
    for module in network.modules():  # TinyViT caches biases that have gradients, which cannot be copied
        getattr(module, "attention_bias_cache", {}).clear()
    return deepcopy(network)
