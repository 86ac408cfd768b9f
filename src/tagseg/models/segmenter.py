"""The network of the method: DeepLabv3+ with a gate, and class scores pooled from its masks (Fig. 3 and 5)."""

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.models.backbones import Backbone
from tagseg.models.base import Network, Segmentation, batch_norms, enlarge, enlarge_in_training, full_precision
from tagseg.models.config import ModelConfig
from tagseg.models.gate import GlobalCueInjection, build_gate, conv_norm_relu
from tagseg.models.pooling import POOLINGS, build_penalty, with_background

_ASPP_RATES = (12, 24, 36)


class Segmenter(Network):
    """Backbone, ASPP, skip connection, gate and decoder; class scores are pooled from the masks.

    A vision transformer has no shallow map and needs no ASPP, since its tokens see the whole image: a small stem on the
    image gives the skip connection its edges at stride 4, and convolutions replace the ASPP.
    """

    classifier_name = "decoder.8"
    learns_background = False  # the background's score is a constant: image tags say nothing about it

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        config = self.config
        width, skip_width = config.width, config.width * 48 // 256  # 48 in DeepLabv3+
        skip_channels = backbone.skip_channels
        self.stem: nn.Module | None = None
        if not skip_channels:
            skip_channels = width // 4
            self.stem = nn.Sequential(
                *conv_norm_relu(config.in_channels, skip_channels // 2, 3, stride=2),
                *conv_norm_relu(skip_channels // 2, skip_channels, 3, stride=2),
            )
        self.aspp: nn.Module = (
            nn.Sequential(*conv_norm_relu(backbone.deep_channels, width, 1), *conv_norm_relu(width, width, 3))
            if config.context == "conv"
            else ASPP(backbone.deep_channels, _ASPP_RATES, width)
        )
        self.skip = conv_norm_relu(skip_channels, skip_width, 1)
        self.fuse = SkipFusion(*conv_norm_relu(width + skip_width, width, 3))
        self.gate = build_gate(config.gate, config.psi)
        if self.gate is not None:
            self.shallow: nn.Module = (
                GlobalCueInjection(skip_channels, width, instance_moments=config.gci == "paper")
                if config.gci
                else conv_norm_relu(skip_channels, width, 1)
            )
        self.decoder = nn.Sequential(
            *conv_norm_relu(width, width, 3),
            nn.Dropout(0.5),
            *conv_norm_relu(width, width, 3),
            nn.Dropout(0.1),
            nn.Conv2d(width, config.num_classes + self.learns_background, 1),
        )
        self._token_channels = backbone.token_channels
        self._pool = POOLINGS[config.pooling]
        self._penalty = build_penalty(config.penalty, p=config.penalty_p, lam=config.penalty_lambda)
        for name, module in self.named_modules():
            if isinstance(module, nn.Conv2d) and not name.startswith("backbone."):
                nn.init.kaiming_normal_(module.weight)
        self.train(self.training)

    def frozen_norms(self) -> Iterable[nn.Module]:
        """Batch norms of a fine-tuned backbone and of the ASPP, which keeps its initial statistics."""
        return (*super().frozen_norms(), *(batch_norms(self.aspp) if isinstance(self.aspp, ASPP) else ()))

    def forward(self, x: Tensor, *, full_size: bool = True, deep: Tensor | None = None) -> Segmentation:
        """Segment normalized images.

        Args:
            x: Images, normalized by the backbone's mean and std, [B, C, H, W].
            full_size: Enlarge the masks to the images' size; training does not need it.
            deep: Deep map of the backbone, where it is known and the backbone has no shallow one.
        """
        skip, deep = self._features(x, deep)
        logits = with_background(self._pixel_scores(skip, deep), score=self.config.background_score)
        masks = logits.softmax(1)  # Sec. 3.2: softmax over the classes and the background
        sized = enlarge(masks, x.shape[-2:]) if full_size else masks
        return Segmentation(self._score(logits, masks), sized, logits, self._tokens(deep))

    def _features(self, x: Tensor, deep: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Shallow and deep features of normalized images."""
        self._check_input(x)
        if deep is None:
            skip, deep = self.backbone(x)
        return (skip if self.stem is None else self.stem(x)), deep

    def _tokens(self, deep: Tensor) -> Tensor | None:
        """Last tokens among the deep features of a vision transformer."""
        return deep[:, -self._token_channels :] if self._token_channels else None

    def _pixel_scores(self, skip: Tensor, deep: Tensor) -> Tensor:
        """Scores of the decoder's channels at stride 4, [B, C, h, w]."""
        deep = self.fuse(self.aspp(deep), self.skip(skip))
        if self.gate is not None:
            shallow = self.shallow(skip, deep) if self.config.gci else self.shallow(skip)
            deep = self.gate(deep, shallow)
        return full_precision(self.decoder(deep))

    def _score(self, logits: Tensor, masks: Tensor) -> Tensor:
        """Class scores [B, C]: y_c = y_c^nGWP + y_c^size-focal (Eq. 3 and 5)."""
        logits, masks = logits[:, 1:], masks[:, 1:]
        scores = self._pool(logits, masks)
        return scores if self._penalty is None else scores + self._penalty(masks)  # Eq. 3 + Eq. 5


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling, [B, C, h, w] to [B, outputs, h, w].

    Its tensors have the names of torchvision's ASPP, whose import takes seconds.

    Args:
        inputs: Input channels.
        rates: Dilation of each 3x3 branch.
        outputs: Channels of each branch and of the result.
    """

    def __init__(self, inputs: int, rates: Sequence[int], outputs: int = 256) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                conv_norm_relu(inputs, outputs, 1),
                *(conv_norm_relu(inputs, outputs, 3, dilation=rate) for rate in rates),
                _ImagePooling(nn.AdaptiveAvgPool2d(1), *conv_norm_relu(inputs, outputs, 1)),
            ]
        )
        self.project = nn.Sequential(*conv_norm_relu(len(self.convs) * outputs, outputs, 1), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Apply all branches and project their concatenation."""
        return self.project(torch.cat([branch(x) for branch in self.convs], dim=1))  # type: ignore[no-any-return]


class _ImagePooling(nn.Sequential):
    """Branch of the ASPP that pools the whole image and broadcasts the result."""

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[-2:]
        for module in self:
            x = module(x)
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class SkipFusion(nn.Sequential):
    """Enlarge deep features, concatenate the skip connection, and apply a convolution."""

    def forward(self, deep: Tensor, skip: Tensor) -> Tensor:  # type: ignore[override]
        """Fuse maps [B, D, h, w] and [B, S, H, W] into [B, C, H, W]."""
        size = (skip.shape[-2], skip.shape[-1])  # torch.fx cannot trace a slice of the shape
        deep = (enlarge_in_training if self.training else enlarge)(deep, size)
        return super().forward(torch.cat([deep, skip], dim=1))  # type: ignore[no-any-return, no-untyped-call]
