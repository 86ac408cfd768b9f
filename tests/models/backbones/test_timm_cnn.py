from typing import Any

import torch
from timm.models import create_model, register_model

from tagseg.models import build_model


@register_model
def resnet18_with_values(**options: Any) -> torch.nn.Module:
    """A network whose constructor reads values, which tensors on the meta device do not have."""
    assert torch.ones(1).item() == 1
    return create_model("resnet18", **{**options, "pretrained": False})


def test_constructor_may_read_values() -> None:
    network = build_model("resnet18_with_values", 3, pretrained=False).eval()
    plain = build_model("resnet18", 3, pretrained=False)
    assert network.state_dict().keys() == plain.state_dict().keys()
    assert network(torch.zeros(1, 3, 65, 47)).masks.shape == (1, 4, 65, 47)
