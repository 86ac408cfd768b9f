"""VGG-16 as a dense feature extractor: 3x3 pools, stride 8, the first two dense layers as convolutions."""

from collections.abc import Iterable

import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.models.backbones.base import Backbone, initialize

_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_POOL_STRIDES = (2, 2, 2, 1)  # the last pool keeps the size; stage 5 is dilated instead


class VGG16(Backbone):
    """VGG-16 without its classifier; the layers of `features` have torchvision's numbers, so that its weights fit."""

    skip_channels = 256
    deep_channels = 1024
    optional_weights = ("fc6.", "fc7.")  # torchvision has dense layers of other shapes instead

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = in_channels
        for stage, widths in enumerate(_STAGES):
            if stage:
                layers.append(nn.MaxPool2d(3, _POOL_STRIDES[stage - 1], padding=1))
            dilation = 2 if stage == 4 else 1
            for width in widths:
                layers += [nn.Conv2d(channels, width, 3, padding=dilation, dilation=dilation), nn.ReLU()]
                channels = width
            if stage == 2:
                self._skip_at = len(layers)
        self.features = nn.Sequential(*layers)
        self.fc6 = nn.Conv2d(512, 1024, 3, padding=1)
        self.dropout = nn.Dropout2d(0.5)
        self.fc7 = nn.Conv2d(1024, 1024, 1)
        initialize(self)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the maps of normalized images [B, 3, H, W] at stride 4 and 8."""
        skip = self.features[: self._skip_at](x)
        deep = self.dropout(F.relu(self.fc6(self.features[self._skip_at :](skip))))
        return skip, F.relu(self.fc7(deep))

    def first_layers(self) -> Iterable[nn.Module]:
        """Convolutions of the first stage."""
        return self.features[0], self.features[2]
