"""The interface of all backbones."""

from collections.abc import Iterable

from torch import Tensor, nn

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """Image features: a shallow map for the skip connection, and the last, deep one.

    Attributes:
        skip_channels: Channels of the shallow map; 0 if there is none.
        deep_channels: Channels of the deep map.
        token_channels: Last channels of the deep map that are a transformer's last tokens; 0 for other networks.
        is_frozen: Whether nothing of the backbone learns, so that its maps can be computed once.
        mean: Mean that the weights expect to be subtracted, per channel of images in [0, 1].
        std: Standard deviation to divide by.
        bias_rate: Learning rate of biases, as a multiple of that of weights.
        optional_weights: Prefixes of tensors that a file of weights may lack; they stay random then.
    """

    skip_channels: int
    deep_channels: int
    token_channels: int = 0
    is_frozen: bool = False
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    bias_rate: float = 2.0
    optional_weights: tuple[str, ...] = ()

    def forward(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """Compute the shallow and the deep map of normalized images [B, 3, H, W]."""
        raise NotImplementedError

    def unused_parameters(self, *, with_skip: bool) -> Iterable[nn.Parameter]:  # noqa: ARG002  used by subclasses
        """Parameters that the deep map and, `with_skip`, the shallow one do not depend on."""
        return ()

    def first_layers(self) -> Iterable[nn.Module]:
        """Layers that fine-tuning freezes."""
        raise NotImplementedError

    def frozen_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters that do not learn in fine-tuning."""
        return (parameter for module in self.first_layers() for parameter in module.parameters())


def initialize(module: nn.Module) -> None:
    """Initialize convolutions so that a deep network can be trained from random weights."""
    for child in module.modules():
        if isinstance(child, nn.Conv2d):
            nn.init.kaiming_normal_(child.weight)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
