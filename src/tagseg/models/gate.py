"""The gate that mixes deep and shallow features (Sec. 3.4), and Global Cue Injection for the shallow ones."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StochasticGate(nn.Module):
    """Stochastic Gate (Eq. 9 and 10): training samples deep or shallow features; their expectation is the deep ones.

    Args:
        psi: Mixing rate, the share of shallow features.
        per_pixel: Draw once for all channels of a pixel, as the paper describes it, instead of for every element.
    """

    def __init__(self, psi: float = 0.3, *, per_pixel: bool = False) -> None:
        super().__init__()
        self.psi = _check_psi(psi)
        self.per_pixel = per_pixel

    def forward(self, deep: Tensor, shallow: Tensor) -> Tensor:
        """Mix two feature maps of one shape, [B, C, h, w]."""
        if not self.training:
            return torch.lerp(deep, shallow, self.psi)  # Eq. 10
        draws = torch.empty_like(deep[:, :1] if self.per_pixel else deep)
        take_shallow = draws.bernoulli_(self.psi).bool()
        shifted = (deep - self.psi * shallow) / (1 - self.psi)  # its expectation over the draws is `deep`
        return torch.where(take_shallow, shallow, shifted)  # Eq. 9

    def extra_repr(self) -> str:
        """Options, for print(model)."""
        return f"psi={self.psi}, per_pixel={self.per_pixel}"


class DeterministicGate(nn.Module):
    """Gate without sampling (Table 1c): the weighted sum of Eq. 10 in training too."""

    def __init__(self, psi: float = 0.3) -> None:
        super().__init__()
        self.psi = _check_psi(psi)

    def forward(self, deep: Tensor, shallow: Tensor) -> Tensor:
        """Mix two feature maps of one shape, [B, C, h, w]."""
        return torch.lerp(deep, shallow, self.psi)  # Eq. 10


def build_gate(name: str, psi: float) -> nn.Module | None:
    """Gate by name; `none` is None."""
    if name == "none":
        return None
    if name == "deterministic":
        return DeterministicGate(psi)
    return StochasticGate(psi, per_pixel=name == "stochastic-pixel")


class GlobalCueInjection(nn.Module):
    """Global Cue Injection (Eq. 11): shallow features, scaled and shifted by global cues of the deep ones.

    Args:
        shallow_channels: Channels of the shallow features.
        channels: Channels of the deep features and of the result.
        instance_moments: Normalize by each image's moments and scale by z, as in the paper. By default a batch norm
            without parameters normalizes, and the scale is z + 1, as in the published code.
    """

    def __init__(self, shallow_channels: int, channels: int = 256, *, instance_moments: bool = False) -> None:
        super().__init__()
        self.cues = conv_norm_relu(channels, 2 * channels, 1)
        self.shallow = nn.Conv2d(shallow_channels, channels, 1, bias=False)
        self.norm = nn.InstanceNorm2d(channels) if instance_moments else nn.BatchNorm2d(channels, affine=False)
        self.merge = conv_norm_relu(channels, channels, 1)
        self.scale_offset = 0.0 if instance_moments else 1.0

    def forward(self, shallow: Tensor, deep: Tensor) -> Tensor:
        """Enrich shallow features [B, S, h, w] by deep ones [B, C, h, w], to [B, C, h, w]."""
        conv, norm, relu = self.cues
        # ReLU and maximum commute, and after the maximum there is only one value to rectify.
        scale, shift = relu(self._global_max(norm(conv(deep)))).chunk(2, dim=1)
        shallow = self.norm(self.shallow(shallow))
        return self.merge(F.relu(shallow * (scale + self.scale_offset) + shift))  # type: ignore[no-any-return]  # Eq. 11

    def _global_max(self, maps: Tensor) -> Tensor:
        """Maximum of each map, [B, C, h, w] to [B, C, 1, 1]."""
        if not self.training:
            return maps.amax((2, 3), keepdim=True)  # faster
        # The gradient of `amax` goes to all elements that equal the maximum. Compiled in half precision, unrounded
        # elements are compared with a rounded maximum, none is equal, and the gradient is NaN; `max` keeps the index.
        # Channels come last so that the gradient has the memory layout of the maps.
        return maps.permute(0, 2, 3, 1).flatten(1, 2).max(1).values[..., None, None]


def conv_norm_relu(inputs: int, outputs: int, kernel: int, *, dilation: int = 1, stride: int = 1) -> nn.Sequential:
    """Convolution without bias, batch norm and ReLU; the size stays with stride 1."""
    padding = kernel // 2 * dilation
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=padding, dilation=dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def _check_psi(psi: float) -> float:
    if not 0 <= psi < 1:
        raise ValueError(f"psi must be at least 0 and less than 1, got {psi}")
    return psi
