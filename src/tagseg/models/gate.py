"""The gate that mixes deep and shallow features (Sec. 3.4), and the global cues given to the shallow ones."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.errors import unknown_name


class StochasticGate(nn.Module):
    """Stochastic Gate (Eq. 9 and 10): training draws deep or shallow features, with the deep ones as the mean.

    Args:
        psi: the mixing rate, the share of the shallow features.
        per_pixel: one draw for all channels of a pixel, as the paper words it; by default every element has its own.
    """

    def __init__(self, psi: float = 0.3, *, per_pixel: bool = False) -> None:
        super().__init__()
        self.psi = _check_psi(psi)
        self.per_pixel = per_pixel

    def forward(self, deep: Tensor, shallow: Tensor) -> Tensor:
        """Mix two feature maps of one shape, [B, C, h, w]."""
        if not self.training:
            return torch.lerp(deep, shallow, self.psi)
        draws = torch.empty_like(deep[:, :1] if self.per_pixel else deep)
        take_shallow = draws.bernoulli_(self.psi).bool()
        shifted = (deep - self.psi * shallow) / (1 - self.psi)  # so that the mean over the draws is `deep`
        return torch.where(take_shallow, shallow, shifted)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"psi={self.psi}, per_pixel={self.per_pixel}"


class DeterministicGate(nn.Module):
    """The gate without chance (Table 1c): the weighted sum of Eq. 10 in training too."""

    def __init__(self, psi: float = 0.3) -> None:
        super().__init__()
        self.psi = _check_psi(psi)

    def forward(self, deep: Tensor, shallow: Tensor) -> Tensor:
        """Mix two feature maps of one shape, [B, C, h, w]."""
        return torch.lerp(deep, shallow, self.psi)


GATES = ("stochastic", "stochastic-pixel", "deterministic", "none")


def build_gate(name: str, psi: float) -> nn.Module | None:
    """A gate by name; `none` leaves the deep features alone."""
    if name not in GATES:
        raise unknown_name("gate", name, GATES)
    if name == "none":
        return None
    if name == "deterministic":
        return DeterministicGate(psi)
    return StochasticGate(psi, per_pixel=name == "stochastic-pixel")


class GlobalCueInjection(nn.Module):
    """Global Cue Injection (Eq. 11): shallow features, scaled and shifted by what the deep ones see in the image.

    Args:
        shallow_channels: channels of the skip feature.
        channels: channels of the deep features and of the result.
        instance_moments: normalise by each image's own moments and scale by z, as the paper has it; by default
            a batch norm without parameters normalises, and the scale is z + 1, as the published network does.
    """

    def __init__(self, shallow_channels: int, channels: int = 256, *, instance_moments: bool = False) -> None:
        super().__init__()
        self.cues = conv_norm_relu(channels, 2 * channels, 1)
        self.shallow = nn.Conv2d(shallow_channels, channels, 1, bias=False)
        self.norm = nn.InstanceNorm2d(channels) if instance_moments else nn.BatchNorm2d(channels, affine=False)
        self.merge = conv_norm_relu(channels, channels, 1)
        self.scale_offset = 0.0 if instance_moments else 1.0

    def forward(self, shallow: Tensor, deep: Tensor) -> Tensor:
        """Shallow features [B, S, h, w] and deep ones [B, C, h, w] to enriched shallow ones [B, C, h, w]."""
        conv, norm, relu = self.cues
        # The ReLU of the largest value is the largest value of the ReLU, and one of it suffices.
        scale, shift = relu(self._largest(norm(conv(deep)))).chunk(2, dim=1)
        shallow = self.norm(self.shallow(shallow))
        return self.merge(F.relu(shallow * (scale + self.scale_offset) + shift))  # type: ignore[no-any-return]

    def _largest(self, maps: Tensor) -> Tensor:
        """The largest value of each map, [B, C, h, w] to [B, C, 1, 1]."""
        if not self.training:
            return maps.amax((2, 3), keepdim=True)  # faster
        # The gradient of `amax` goes to all places that equal it. A compiled network compares values that it has not
        # rounded with one that it has, finds none, and divides by nothing; so the place is kept. Channels come last, so
        # that the gradient lies in memory as the maps do.
        return maps.permute(0, 2, 3, 1).flatten(1, 2).max(1).values[..., None, None]


def conv_norm_relu(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    """A convolution without bias, batch norm, ReLU: the brick of every new part of the network."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def _check_psi(psi: float) -> float:
    if not 0 <= psi < 1:
        raise ValueError(f"psi must be at least 0 and less than 1, got {psi}")
    return psi
