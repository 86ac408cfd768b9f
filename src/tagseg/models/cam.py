"""The baseline: class activation maps (Eq. 1 and 2) of a classifier with global average pooling."""

from torch import Tensor, nn

from tagseg.models.backbones import Backbone
from tagseg.models.base import Network, Segmentation, enlarge, full_precision
from tagseg.models.config import ModelConfig
from tagseg.models.pooling import with_background


class CAM(Network):
    """A classifier; its masks are the positive part of its score maps, divided by their maximum."""

    uses_skip = False
    classifier_name = "classifier"

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.dropout = nn.Dropout2d(0.5)
        self.classifier = nn.Conv2d(backbone.deep_channels, self.config.num_classes, 1, bias=False)
        nn.init.xavier_uniform_(self.classifier.weight)
        self.train(self.training)

    def forward(self, x: Tensor, *, full_size: bool = True) -> Segmentation:
        """Classify and localize, as `Segmenter.forward` does; a pixel's mask values do not sum to 1."""
        self._check_input(x)
        _, deep = self.backbone(x)
        scores = self.classifier(self.dropout(deep).mean((2, 3), keepdim=True)).flatten(1)  # Eq. 1
        logits = full_precision(self.classifier(deep))
        maps = (enlarge(logits, x.shape[-2:]) if full_size else logits).relu()  # Eq. 2
        maps = maps / (1e-5 + maps.amax((2, 3), keepdim=True))
        return Segmentation(full_precision(scores), with_background(maps, score=self.config.background), logits)
