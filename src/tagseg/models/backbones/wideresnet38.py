"""WideResNet-38 (model A1 of Wu et al., "Wider or Deeper"): pre-activation blocks, dilated to stride 8."""

from collections.abc import Iterable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from tagseg.models.backbones.base import Backbone, initialize


class _Block(nn.Module):
    """Two or three times batch norm, ReLU, convolution; the shortcut is the raw input if the shape stays."""

    def __init__(
        self,
        widths: Sequence[int],
        kernels: Sequence[int],
        *,
        stride: int = 1,
        dilations: Sequence[int] | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        dilations = dilations or [1] * len(kernels)
        strides = [stride] + [1] * (len(kernels) - 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths[:-1])
        self.convs = nn.ModuleList(
            nn.Conv2d(inputs, outputs, kernel, step, padding=kernel // 2 * dilation, dilation=dilation, bias=False)
            for inputs, outputs, kernel, step, dilation in zip(
                widths[:-1], widths[1:], kernels, strides, dilations, strict=True
            )
        )
        self.dropout = nn.Dropout2d(dropout)
        reshapes = widths[0] != widths[-1] or stride != 1
        self.shortcut = nn.Conv2d(widths[0], widths[-1], 1, stride, bias=False) if reshapes else None

    def forward(self, x: Tensor) -> Tensor:
        activated = F.relu(self.norms[0](x))
        shortcut = x if self.shortcut is None else self.shortcut(activated)
        y = self.convs[0](activated)
        for norm, conv in zip(list(self.norms)[1:], list(self.convs)[1:], strict=True):
            y = conv(self.dropout(F.relu(norm(y))))
        return shortcut + y  # type: ignore[no-any-return]


def _stage(inputs: int, middle: int, outputs: int, blocks: int, *, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """Blocks of two 3x3 convolutions; only the first block strides, and its first convolution is not dilated."""
    first = _Block([inputs, middle, outputs], [3, 3], stride=stride, dilations=[1, dilation])
    rest = [_Block([outputs, middle, outputs], [3, 3], dilations=[dilation, dilation]) for _ in range(blocks - 1)]
    return nn.Sequential(first, *rest)


def _bottleneck(inputs: int, outputs: int, dropout: float) -> nn.Sequential:
    widths = [inputs, outputs // 4, outputs // 2, outputs]
    return nn.Sequential(_Block(widths, [1, 3, 1], dilations=[1, 4, 1], dropout=dropout))


class WideResNet38(Backbone):
    """The paper's main backbone; the shallow map is the output of stage 3 before its batch norm."""

    skip_channels = 256
    deep_channels = 4096

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
        self.stage2 = _stage(64, 128, 128, 3, stride=2)
        self.stage3 = _stage(128, 256, 256, 3, stride=2)
        self.stage4 = _stage(256, 512, 512, 6, stride=2)
        self.stage5 = _stage(512, 512, 1024, 3, dilation=2)
        self.stage6 = _bottleneck(1024, 2048, dropout=0.3)
        self.stage7 = _bottleneck(2048, 4096, dropout=0.5)
        self.norm = nn.BatchNorm2d(4096)
        initialize(self)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the maps of normalized images [B, 3, H, W] at stride 4 and 8."""
        skip = self.stage3(self.stage2(self.conv1(x)))
        deep = self.stage7(self.stage6(self.stage5(self.stage4(skip))))
        return skip, F.relu(self.norm(deep))

    def first_layers(self) -> Iterable[nn.Module]:
        """First convolution and stage 2."""
        return self.conv1, self.stage2
