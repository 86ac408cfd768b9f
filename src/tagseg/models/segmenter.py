"""The method's network: DeepLabv3+ with a gate, whose class scores come out of its own masks (Fig. 3 and 5)."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torchvision.models.segmentation.deeplabv3 import ASPP

from tagseg.models.backbones import Backbone
from tagseg.models.config import ModelConfig
from tagseg.models.gate import GlobalCueInjection, build_gate, conv_norm_relu
from tagseg.models.network import Network, Segmentation, batch_norms, enlarge, enlarge_in_training, full_precision
from tagseg.models.pooling import POOLINGS, build_penalty, with_background

_ASPP_RATES = (12, 24, 36)


class Join(nn.Sequential):
    """Deep features, enlarged, beside those of the skip connection, through a convolution."""

    def forward(self, deep: Tensor, skip: Tensor) -> Tensor:  # type: ignore[override]
        """Join maps, [B, D, h, w] and [B, S, H, W], to [B, C, H, W]."""
        size = (skip.shape[-2], skip.shape[-1])  # one by one, for torch.fx
        deep = (enlarge_in_training if self.training else enlarge)(deep, size)
        return super().forward(torch.cat([deep, skip], dim=1))  # type: ignore[no-any-return, no-untyped-call]


class Segmenter(Network):
    """Backbone, ASPP, skip connection, gate and decoder; scores pooled from the masks."""

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        width, skip_width = config.width, config.width * 48 // 256  # 48 in DeepLabv3+
        self.aspp = ASPP(backbone.deep_channels, _ASPP_RATES, width)
        self.skip = conv_norm_relu(backbone.skip_channels, skip_width, 1)
        self.fuse = Join(*conv_norm_relu(width + skip_width, width, 3))
        self.gate = build_gate(config.gate, config.psi)
        if self.gate is not None:
            self.shallow: nn.Module = (
                GlobalCueInjection(backbone.skip_channels, width, instance_moments=config.gci == "paper")
                if config.gci
                else conv_norm_relu(backbone.skip_channels, width, 1)
            )
        self.decoder = nn.Sequential(
            *conv_norm_relu(width, width, 3),
            nn.Dropout(0.5),
            *conv_norm_relu(width, width, 3),
            nn.Dropout(0.1),
            nn.Conv2d(width, config.classes, 1),
        )
        self._pool = POOLINGS[config.pooling]
        self._penalty = build_penalty(config.penalty, p=config.penalty_p, lam=config.penalty_lambda)
        for name, module in self.named_modules():
            if isinstance(module, nn.Conv2d) and not name.startswith("backbone."):
                nn.init.kaiming_normal_(module.weight)
        self.train(self.training)

    def resting_norms(self) -> Iterable[nn.Module]:
        """Besides the backbone's, those of the ASPP: they keep the statistics that they start with."""
        return (*super().resting_norms(), *batch_norms(self.aspp))

    def forward(self, x: Tensor, *, full_size: bool = True) -> Segmentation:
        """Segment normalised images.

        Args:
            x: images, normalised by the backbone's mean and std, [B, C, H, W].
            full_size: masks at the images' size; False leaves them at the logits', which is all that training needs.
        """
        self._check_input(x)
        skip, deep = self.backbone(x)
        deep = self.fuse(self.aspp(deep), self.skip(skip))
        if self.gate is not None:
            shallow = self.shallow(skip, deep) if self.config.gci else self.shallow(skip)
            deep = self.gate(deep, shallow)
        logits = with_background(full_precision(self.decoder(deep)))
        masks = logits.softmax(1)
        return Segmentation(self._score(logits, masks), enlarge(masks, x.shape[-2:]) if full_size else masks, logits)

    def _score(self, logits: Tensor, masks: Tensor) -> Tensor:
        logits, masks = logits[:, 1:], masks[:, 1:]
        scores = self._pool(logits, masks)
        return scores if self._penalty is None else scores + self._penalty(masks)
