import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import tagseg
from tagseg.models import Network
from tagseg.predict.predictor import Predictor, load
from tagseg.predict.settings import InferenceSettings
from tagseg.predict.tta import resize_images
from tests.compare import assert_close
from tests.predict.conftest import KEEP_ALL, wavy

Pixels = NDArray[np.uint8]


def normalised(network: Network, image: Image.Image) -> torch.Tensor:
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (network.backbone.mean, network.backbone.std))
    return (x - mean) / std


def test_quick_is_one_plain_look(network: Network, predictor: Predictor, image: Pixels) -> None:
    found = predictor.predict(image)
    with torch.no_grad():
        said = network(normalised(network, Image.fromarray(image)))
    expected = torch.cat([said.masks[0, :1] ** 3, said.masks[0, 1:]])
    assert_close(torch.from_numpy(found.probabilities), expected)
    assert np.array_equal(found.mask, expected.argmax(0).numpy())
    assert list(found.scores.values()) == pytest.approx(said.scores.sigmoid()[0].tolist(), abs=1e-5)
    assert found.settings.scales == (1.0,)


def test_quality_is_what_the_paper_does(network: Network, predictor: Predictor, image: Pixels) -> None:
    found = predictor.predict(image, tta=True, tags=["dog"])
    masks, scores = [], []
    for scale in (1.0, 0.75, 1.25, 1.5):
        size = (round(80 * scale), round(64 * scale))
        x = normalised(network, Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
        for view in (x, x.flip(-1)):
            with torch.no_grad():
                said = network(view)
            masks.append(said.masks[0])
            scores.append(said.scores.sigmoid()[0])
    merged = tagseg.merge_scales(masks, (64, 80), flipped=[False, True] * 4, labels=torch.tensor([0, 1]))
    # PIL rounds to whole levels twice, once for each side.
    assert_close(torch.from_numpy(found.probabilities), merged, tolerance=5e-3)
    assert list(found.scores.values()) == pytest.approx(torch.stack(scores).amax(0).tolist(), abs=5e-3)


@pytest.mark.parametrize("scale", [0.5, 0.75, 1.25, 2.0])
def test_images_are_resized_as_pil_does(scale: float, image: Pixels) -> None:
    ours = resize_images(torch.from_numpy(image).permute(2, 0, 1)[None], scale)[0].permute(1, 2, 0)
    size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
    theirs = torch.from_numpy(np.array(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)))
    assert (ours - theirs).abs().max() <= 1


def test_scores_decide_unless_tags_are_given(network: Network, image: Pixels) -> None:
    strict = Predictor(network, InferenceSettings(thresholds=1.0), device="cpu", precision="float32")
    found = strict.predict(image)
    assert (found.labels, found.protocol) == ((), "predicted-tags")
    assert not found.mask.any()
    assert set(found.scores) == {"cat", "dog"}
    tagged = strict.predict(image, tags=["dog"])
    assert (tagged.labels, tagged.protocol) == (("dog",), "true-tags")
    assert (tagged.probabilities[1] == 0).all()
    assert set(np.unique(tagged.mask)) <= {0, 2}


def test_an_unknown_tag_names_the_nearest(predictor: Predictor, image: Pixels) -> None:
    with pytest.raises(ValueError, match="unknown tag 'dogs'; known: cat, dog. Did you mean 'dog'"):
        predictor.predict(image, tags=["dogs"])


@pytest.mark.parametrize("size", [(1, 1), (1, 70), (31, 33), (20, 5)])
def test_tiny_images_work(predictor: Predictor, size: tuple[int, int]) -> None:
    found = predictor.predict(wavy(*size), tta=True, crf=True)
    assert found.mask.shape == size
    assert found.probabilities.shape == (3, *size)
    assert np.isfinite(found.probabilities).all()


def test_crf_refines_what_pruning_left(predictor: Predictor, image: Pixels) -> None:
    found = predictor.predict(image, tags=["cat"], crf=True)
    plain = predictor.predict(image, tags=["cat"])
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    expected = tagseg.dense_crf(tensor, torch.from_numpy(plain.probabilities[:2]))
    assert_close(torch.from_numpy(found.probabilities[:2]), expected)
    assert (found.probabilities[2] == 0).all()
    assert found.crf
    assert not plain.crf


def test_a_batch_with_crf_is_what_each_image_gets_alone(network: Network) -> None:
    settings = InferenceSettings(thresholds=0.0)
    predictor = Predictor(network, settings, device="cpu", precision="float32")
    images = [wavy(64, 80, seed) for seed in range(3)]
    scores = sorted(score for image in images for score in predictor.predict(image).scores.values())
    # So high that the images differ in how many classes they keep.
    predictor.settings = replace(settings, thresholds=(scores[2] + scores[3]) / 2)
    for one, found in zip(images, predictor.predict_many(images, batch_size=3, crf=True), strict=True):
        alone = predictor.predict(one, crf=True)
        assert found.class_indices == alone.class_indices
        assert_close(torch.from_numpy(found.probabilities), torch.from_numpy(alone.probabilities))
        assert np.array_equal(found.mask, found.probabilities.argmax(0))


def test_all_forms_of_a_image_give_the_same(predictor: Predictor, image: Pixels, tmp_path: Path) -> None:
    file = tmp_path / "photo.png"
    Image.fromarray(image).save(file)
    expected = predictor.predict(image).mask
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    for form in (file, str(file), Image.fromarray(image), tensor, tensor / 255, image / 255):
        assert np.array_equal(predictor.predict(form).mask, expected)
    assert predictor.predict(file).name == "photo"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((8, 8, 2), np.uint8), r"1, 3 or 4 channels, or \[H, W\], got \[8, 8, 2\]"),
        (np.zeros((8, 8, 3), np.int64), "must be uint8, or floating point"),
        (np.full((8, 8), 7.0), r"in \[0, 1\], got 7.0"),
        (17, "got int"),
    ],
)
def test_what_is_no_image_is_refused(predictor: Predictor, wrong: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predictor.predict(wrong)  # type: ignore[call-overload]


def test_grey_networks_see_grey(image: Pixels) -> None:
    grey = Predictor(tagseg.build_model("resnet18", ["a"], in_channels=1), KEEP_ALL, device="cpu", precision="float32")
    same = np.repeat(image.mean(2, keepdims=True).round().astype(np.uint8), 3, 2)
    assert grey.predict(image).mask.shape == (64, 80)
    assert np.array_equal(grey.predict(same).mask, grey.predict(same[..., 0]).mask)
    with pytest.raises(ValueError, match="takes 4 channels, but images are RGB"):
        Predictor(tagseg.build_model("resnet18", ["a"], in_channels=4))


def test_many_classes_need_16_bits(image: Pixels, tmp_path: Path) -> None:
    found = Predictor(tagseg.build_model("resnet18", 300), device="cpu", precision="float32").predict(
        image, tags=["class 299"]
    )
    assert found.mask.dtype == np.uint16
    found = replace(found, mask=np.full_like(found.mask, 299))
    assert found.labels == ("class 299",)
    found.save(tmp_path / "mask.png")
    assert (np.array(Image.open(tmp_path / "mask.png")) == 299).all()
    assert found.overlay().width >= 80


def test_json_says_all_but_the_pixels(predictor: Predictor, image: Pixels) -> None:
    mask = np.zeros((64, 80), np.uint8)
    mask[10:20, 30:70] = 2
    said = json.loads(replace(predictor.predict(image), mask=mask).to_json())
    assert said["classes"] == [{"name": "dog", "value": 2, "area": 400, "share": 400 / 5120, "box": [30, 10, 70, 20]}]
    assert said["size"] == {"width": 80, "height": 64}
    assert said["protocol"] == "predicted-tags"
    assert said["settings"]["thresholds_from"] == "paper"
    assert said["model"] == {"name": "model", "method": "single-stage", "backbone": "resnet18"}


def test_a_cams_background_can_be_set(image: Pixels) -> None:
    cam = tagseg.build_cam("resnet18", ["a", "b"])
    plain = Predictor(cam, device="cpu", precision="float32").predict(image, tags=["a"])
    assert plain.probabilities[0] == pytest.approx(0.1)
    none = replace(plain.settings, background=2.0)
    assert not Predictor(cam, none, device="cpu", precision="float32").predict(image, tags=["a"]).mask.any()
    with pytest.raises(ValueError, match="settings.background is for CAM"):
        Predictor(tagseg.build_model("resnet18", ["a", "b"]), none)


def test_a_wrong_place_for_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere: does not exist; name a run's folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="this folder has no model.safetensors"):
        load(tmp_path)


def test_wrong_options_are_refused(network: Network) -> None:
    with pytest.raises(ValueError, match="unknown precision 'fp16'; known: auto, bfloat16, float32"):
        Predictor(network, precision="fp16")
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        Predictor(network, device="gpu")
    with pytest.raises(ValueError, match="max_pixels must be at least 65536"):
        Predictor(network, max_pixels=100)


def test_a_network_in_training_stays_in_training(image: Pixels) -> None:
    network = tagseg.build_model("resnet18", ["a"]).train()
    predictor = Predictor(network, KEEP_ALL, device="cpu", precision="float32")
    first, second = predictor.predict(image), predictor.predict(image)
    assert network.training
    assert np.array_equal(first.probabilities, second.probabilities)


def test_half_precision_agrees(network: Network, predictor: Predictor, image: Pixels) -> None:
    half = Predictor(network, KEEP_ALL, device="cpu", precision="bfloat16").predict(image)
    assert half.probabilities.dtype == np.float32
    assert np.abs(half.probabilities - predictor.predict(image).probabilities).mean() < 0.02
