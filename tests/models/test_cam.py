import torch

import tagseg
from tests.compare import assert_close


def test_scores_are_the_means_of_the_score_maps() -> None:
    """Eq. 1: global average pooling and the classifier can change places."""
    with torch.inference_mode():
        out = tagseg.build_cam("resnet18", 3).eval()(torch.randn(2, 3, 64, 96))
    assert_close(out.scores, out.logits.mean((2, 3)))


def test_masks_are_positive_score_maps_divided_by_their_maximum() -> None:
    """Eq. 2: beside the constant background, and empty for a class without a positive score."""
    model = tagseg.build_cam("resnet18", 3, background=0.25).eval()
    with torch.inference_mode():
        model.classifier.weight[1].abs_().neg_()  # features are not negative, so this class's scores are not positive
        out = model(torch.randn(2, 3, 64, 96), full_size=False)
    background, masks = out.masks[:, 0], out.masks[:, 1:]
    assert (background == 0.25).all()
    for class_index in (0, 2):
        positive = out.logits[:, class_index].relu()
        assert_close(masks[:, class_index], positive / positive.amax((1, 2), keepdim=True), tolerance=1e-3)
    assert (masks[:, 1] == 0).all()
