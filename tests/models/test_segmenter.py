import torch
from torchvision.models.segmentation import deeplabv3

from tagseg.models.segmenter import ASPP
from tests.compare import assert_close
from tests.conftest import Reference
from tests.reference_networks import fill


def test_reference_aspp(reference: Reference) -> None:
    golden = reference("aspp_os8.npz")
    assert_close(fill(ASPP(64, (12, 24, 36)), prefix="aspp.").eval()(golden["x"]), golden["out"])


def test_aspp_equals_torchvision() -> None:
    torch.manual_seed(0)
    aspp = ASPP(16, (12, 24, 36), 8).eval()
    torch.manual_seed(0)
    expected = deeplabv3.ASPP(16, (12, 24, 36), 8).eval()
    assert list(aspp.state_dict()) == list(expected.state_dict())
    features = torch.randn(2, 16, 9, 11)
    assert torch.equal(aspp(features), expected(features))
