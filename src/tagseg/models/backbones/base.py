"""What every backbone is to the rest of the network."""

from collections.abc import Iterable

from torch import Tensor, nn

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """Features of an image: a shallow map for the skip connection and the last, deep one.

    Attributes:
        skip_channels: channels of the shallow map.
        deep_channels: channels of the deep map.
        mean: the images' mean, per channel, that the weights expect to be subtracted; values in [0, 1].
        std: the standard deviation to divide by.
        bias_rate: how much faster biases learn than weights.
    """

    skip_channels: int
    deep_channels: int
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    bias_rate: float = 2.0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A normalised image [B, 3, H, W] to the shallow and the deep map."""
        raise NotImplementedError

    def unused_parameters(self, *, with_skip: bool) -> Iterable[nn.Parameter]:  # noqa: ARG002  other backbones ask
        """The parameters that neither the deep map nor, `with_skip`, the shallow one depends on; they cannot learn."""
        return ()

    def first_layers(self) -> Iterable[nn.Module]:
        """The layers that stay as they were pretrained: their filters are general."""
        raise NotImplementedError


def initialise(module: nn.Module) -> None:
    """Random weights from which a deep network without pretraining learns."""
    for child in module.modules():
        if isinstance(child, nn.Conv2d):
            nn.init.kaiming_normal_(child.weight)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
