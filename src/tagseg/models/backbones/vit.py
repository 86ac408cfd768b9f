"""Any plain vision transformer of timm as a backbone, for images of any size.

timm is imported only where a network is built: that takes seconds.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.errors import ConfigError
from tagseg.models.backbones.base import Backbone


class TimmViT(Backbone):
    """A plain vision transformer of timm; its deep map holds the patch tokens of some blocks, side by side.

    Images are resized to whole patches, so that the map covers all of the image, and the position embedding with them.
    There is no shallow map: the first map of a transformer has the stride of its patches.

    Args:
        name: Its timm name.
        in_channels: Channels of the images.
        blocks: Blocks whose tokens are used, counted from 1; by default the last, and the one at three quarters.
        trainable_blocks: Last blocks that learn; None if all of the transformer learns.
    """

    bias_rate = 1.0
    skip_channels = 0

    def __init__(
        self,
        name: str,
        in_channels: int = 3,
        *,
        blocks: Sequence[int] | None = None,
        trainable_blocks: int | None = None,
    ) -> None:
        super().__init__()
        import timm

        self.in_channels = in_channels
        self.net = create_vit(name, in_channels)
        depth = len(self.net.blocks)
        self.blocks = tuple(blocks) if blocks else (depth * 3 // 4, depth)
        if not all(1 <= block <= depth for block in self.blocks):
            raise ConfigError(f"model.blocks must be from 1 to {depth}, the blocks of {name}, got {list(self.blocks)}")
        if trainable_blocks is not None and trainable_blocks > depth:
            raise ConfigError(f"model.trainable_blocks must be at most {depth}, the blocks of {name}")
        self.trainable_blocks = trainable_blocks
        self.patch = int(self.net.patch_embed.patch_size[0])
        self.token_channels = self.net.embed_dim
        self.deep_channels = self.token_channels * len(self.blocks)
        self.is_frozen = trainable_blocks == 0
        self.deep_stride = self.patch
        config = timm.get_pretrained_cfg(name)
        if config is not None and in_channels == len(config.mean):
            self.mean, self.std = tuple(config.mean), tuple(config.std)

    def forward(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """Compute the deep map of normalized images [B, 3, H, W]: [B, C, H / patch, W / patch], rounded."""
        height, width = (whole_patches(side, self.patch) * self.patch for side in x.shape[-2:])
        if torch.compiler.is_exporting() or (height, width) != tuple(x.shape[-2:]):
            x = F.interpolate(x, (height, width), mode="bilinear", align_corners=False)
        maps = self.net.forward_intermediates(
            x, indices=[block - 1 for block in self.blocks], norm=True, stop_early=True, intermediates_only=True
        )
        return None, torch.cat(maps, 1)

    def download_timm_weights(self, name: str) -> dict[str, Tensor]:
        """Download timm's weights for `net`, adapted to the input channels."""
        return dict(create_vit(name, self.in_channels, pretrained=True).state_dict())

    def unused_parameters(self, *, with_skip: bool) -> Iterable[nn.Parameter]:  # noqa: ARG002  there is no skip
        """Parameters of the blocks behind the last one that is used."""
        return (parameter for block in self.net.blocks[max(self.blocks) :] for parameter in block.parameters())

    def frozen_parameters(self) -> Iterable[nn.Parameter]:
        """Parameters that do not learn: all but those of the last blocks and the norm behind them."""
        if self.trainable_blocks is None:
            return ()
        first = len(self.net.blocks) - self.trainable_blocks
        learning = {id(p) for block in self.net.blocks[first:] for p in block.parameters()}
        if self.trainable_blocks:
            learning |= {id(parameter) for parameter in self.net.norm.parameters()}
        return (parameter for parameter in self.net.parameters() if id(parameter) not in learning)


def create_vit(name: str, in_channels: int, *, pretrained: bool = False) -> Any:
    """Build a transformer of timm without its classifier, for images of any size.

    Raises:
        ConfigError: The model gives no map of tokens for images of any size.
    """
    import timm

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Mapping deprecated model name")
            net = timm.create_model(
                name, pretrained=pretrained, num_classes=0, in_chans=in_channels, dynamic_img_size=True
            )
    except TypeError:
        net = None
    if net is None or not is_vit(net):
        raise ConfigError(
            f"timm's {name!r} has no tokens for images of any size, so it cannot be a backbone",
            "choose a plain transformer such as vit_small_patch14_dinov2, or a convolutional network",
        )
    net.fc_norm = nn.Identity()  # norm of the pooled tokens, which a classifier needs
    return net


def whole_patches(side: int, patch: int) -> int:
    """Number of patches that a side is resized to: at least 1, rounded half to even.

    In integers, so that `torch.export` can follow it.
    """
    return (2 * side + patch - 1 + side // patch % 2) // (2 * patch)


def is_vit(net: object) -> bool:
    """Whether a timm model is a plain vision transformer, with tokens of one stride from every block."""
    return all(hasattr(net, part) for part in ("blocks", "patch_embed", "forward_intermediates", "num_prefix_tokens"))
