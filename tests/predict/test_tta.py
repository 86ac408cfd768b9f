import numpy as np
import pytest
import torch
from PIL import Image

import tagseg
from tagseg.benchmarks.timing import PeakBytes
from tagseg.models import Network
from tagseg.predict.engine import MAX_PIXELS
from tagseg.predict.optimize import optimize_network
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import InferenceSettings
from tagseg.predict.tta import resize_images, run_tta
from tests.compare import assert_close
from tests.conftest import Reference
from tests.predict.conftest import Pixels, normalize


def test_merge_equals_the_reference(reference: Reference) -> None:
    golden = reference("multiscale.npz")
    masks = [
        mask[:, int(top) : int(top + height), int(left) : int(left + width)]
        for mask, (top, left, height, width) in zip(golden["masks"], golden["pads"], strict=True)
    ]
    height, width = golden["image_hw"].tolist()
    merged = tagseg.merge_scales(masks, (height, width), flipped=[False, True] * 4, labels=golden["labels"])
    assert_close(merged, golden["out"])


def test_merging_a_flipped_copy_only_lowers_the_background() -> None:
    masks = torch.rand(3, 6, 8).softmax(0)
    merged = tagseg.merge_scales([masks, masks.flip(-1)], (6, 8), flipped=[False, True])
    assert_close(merged[1:], masks[1:])
    assert_close(merged[:1], masks[:1] ** 3)
    assert_close(tagseg.merge_scales([masks], (6, 8), flipped=[False], background_power=1), masks)


def test_absent_classes_are_zero() -> None:
    merged = tagseg.merge_scales([torch.rand(3, 4, 4)], (8, 8), flipped=[False], labels=torch.tensor([1, 0]))
    assert merged[1].min() > 0
    assert (merged[2] == 0).all()


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="masks is empty"):
        tagseg.merge_scales([], (4, 4), flipped=[])
    with pytest.raises(ValueError, match="the same length, got 1 and 2"):
        tagseg.merge_scales([torch.rand(3, 4, 4)], (4, 4), flipped=[True, False])


def test_tta_equals_the_protocol_of_the_paper(network: Network, predictor: Predictor, image: Pixels) -> None:
    prediction = predictor.predict(image, tta=True, tags=["dog"])
    masks, scores = [], []
    for scale in (1.0, 0.75, 1.25, 1.5):
        size = (round(80 * scale), round(64 * scale))
        x = normalize(network, Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
        for view in (x, x.flip(-1)):
            with torch.no_grad():
                output = network(view)
            masks.append(output.masks[0])
            scores.append(output.scores.sigmoid()[0])
    merged = tagseg.merge_scales(masks, (64, 80), flipped=[False, True] * 4, labels=torch.tensor([0, 1]))
    # PIL rounds to integers twice, once per axis.
    assert_close(torch.from_numpy(prediction.probabilities), merged, tolerance=5e-3)
    assert list(prediction.scores.values()) == pytest.approx(torch.stack(scores).amax(0).tolist(), abs=5e-3)


@pytest.mark.parametrize("scale", [0.5, 0.75, 1.25, 2.0])
def test_resize_equals_pil(scale: float, image: Pixels) -> None:
    resized = resize_images(torch.from_numpy(image).permute(2, 0, 1)[None], scale)[0].permute(1, 2, 0)
    size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
    expected = torch.from_numpy(np.array(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)))
    assert (resized - expected).abs().max() <= 1


def test_tta_at_scale_2_needs_less_than_1_gib() -> None:
    # Tensors on the meta device have sizes but no data, so that a full network costs nothing.
    network = optimize_network(tagseg.build_model("resnet50", 20), bfloat16=False).to("meta")
    images = torch.zeros(1, 375, 500, 3, dtype=torch.uint8, device="meta").permute(0, 3, 1, 2)
    settings = InferenceSettings(scales=(1.0, 0.5, 1.5, 2.0))
    with torch.inference_mode(), PeakBytes() as memory:
        output = run_tta(network, images, settings, max_pixels=MAX_PIXELS)
        output.merge(*(torch.zeros(shape, dtype=torch.long, device="meta") for shape in ((1,), (1, 21))))
    weights = sum(value.nbytes for value in network.state_dict().values())
    assert memory.peak + weights < 2**30
