import pytest
import torch

from tagseg.models.backbones import EfficientNetLite0
from tagseg.models.backbones.timm_cnn import TimmCNN


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_backbone_equals_timm(training: bool, channels: int) -> None:
    """Parameter names, normalization and features equal those of timm's model."""
    backbone, expected = EfficientNetLite0(channels), TimmCNN("tf_efficientnet_lite0", channels)
    assert list(backbone.state_dict()) == list(expected.state_dict())
    assert (backbone.mean, backbone.std) == (expected.mean, expected.std)
    assert (backbone.skip_channels, backbone.deep_channels) == (expected.skip_channels, expected.deep_channels)
    expected.load_state_dict(backbone.state_dict())
    images = torch.randn(2, channels, 67, 93)
    for features, expected_features in zip(
        backbone.train(training)(images), expected.train(training)(images), strict=True
    ):
        assert torch.equal(features, expected_features)


def test_random_weights_have_the_variance_of_timm() -> None:
    backbone, expected = EfficientNetLite0(), TimmCNN("tf_efficientnet_lite0")
    for name, tensor in expected.state_dict().items():
        if tensor.dim() == 4:
            assert backbone.state_dict()[name].std().item() == pytest.approx(tensor.std().item(), rel=0.2), name
