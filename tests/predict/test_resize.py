"""The working size: what the network sees does not depend on an image's resolution, and masks have the image's size."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import tagseg
from tagseg.benchmarks.timing import PeakBytes
from tagseg.models import Network
from tagseg.predict.predictor import Predictor
from tagseg.predict.resize import resize_image, resize_in_bands, resize_masks, shape_within, working_shape
from tests.compare import assert_close
from tests.predict.conftest import KEEP_ALL, Pixels, wave_image

SIZE = 96


@pytest.fixture(scope="module")
def sized(network: Network) -> Predictor:
    return Predictor(network, replace(KEEP_ALL, size=SIZE), device="cpu", precision="float32")


def enlarge_image(image: Pixels, factor: float) -> Pixels:
    size = (round(image.shape[1] * factor), round(image.shape[0] * factor))
    return np.array(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        ((375, 500), 500, (375, 500)),
        ((4000, 6000), 500, (333, 500)),
        ((60, 80), 500, (375, 500)),
        ((10_000, 3), 500, (500, 1)),
        ((4000, 6000), "native", (4000, 6000)),
    ],
)
def test_longest_side_is_the_working_size(shape: tuple[int, int], size: int, expected: tuple[int, int]) -> None:
    assert working_shape(shape, size) == expected


def test_shape_within_keeps_small_shapes_and_proportions() -> None:
    assert shape_within((300, 200), 60_000) == (300, 200)
    assert shape_within((3000, 2000), 60_000) == (300, 200)


@pytest.mark.parametrize("shape", [(33, 50), (128, 160)])
def test_resized_image_equals_pil(shape: tuple[int, int], image: Pixels) -> None:
    expected = np.array(Image.fromarray(image).resize(shape[::-1], Image.Resampling.BICUBIC))
    assert np.abs(resize_image(image, shape).astype(int) - expected).max() <= 1
    assert resize_image(image, (64, 80)) is image


@pytest.mark.parametrize("shape", [(200, 333), (17, 11), (7, 9)])
def test_bands_equal_the_whole(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    monkeypatch.setattr("tagseg.predict.resize._BAND_VALUES", 2**12)
    masks = torch.rand(2, 3, 20, 31)
    expected = F.interpolate(masks, shape, mode="bilinear", align_corners=False)
    assert_close(resize_masks(masks, shape), expected)
    assert len(list(resize_in_bands(masks, (200, 333)))) > 10


@pytest.mark.parametrize("crf", [False, True])
def test_image_of_the_working_size_is_predicted_as_it_is(predictor: Predictor, sized: Predictor, crf: bool) -> None:
    image = wave_image(SIZE, 70)
    native, resized = (model.predict(image, tta=True, crf=crf) for model in (predictor, sized))
    assert np.array_equal(native.probabilities, resized.probabilities)
    assert np.array_equal(native.mask, resized.mask)
    assert native.scores == resized.scores


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("factor", [0.5, 3, 6])
def test_prediction_does_not_depend_on_the_resolution(sized: Predictor, factor: float, crf: bool) -> None:
    image = wave_image(72, SIZE)
    expected, prediction = sized.predict(image, crf=crf), sized.predict(enlarge_image(image, factor), crf=crf)
    assert prediction.mask.shape == (round(72 * factor), round(SIZE * factor))
    assert list(prediction.scores.values()) == pytest.approx(list(expected.scores.values()), abs=0.02)
    enlarged = np.array(Image.fromarray(expected.mask).resize(prediction.mask.shape[::-1], Image.Resampling.NEAREST))
    assert (prediction.mask == enlarged).mean() > 0.95
    assert np.array_equal(prediction.mask, prediction.probabilities.argmax(0))


def test_crf_of_a_large_image_is_bounded(sized: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    image = enlarge_image(wave_image(72, SIZE), 4)
    expected = sized.predict(image, crf=True)
    monkeypatch.setattr("tagseg.predict.engine._MAX_CRF_PIXELS", 144 * 2 * SIZE)
    bounded = sized.predict(image, crf=True)
    assert bounded._probs is not None
    assert bounded._probs.shape[1:] == (144, 2 * SIZE)
    assert bounded.mask.shape == expected.mask.shape
    assert (bounded.mask == expected.mask).mean() > 0.95


def test_images_of_one_working_shape_run_together(sized: Predictor) -> None:
    images = [enlarge_image(wave_image(72, SIZE, seed), factor) for seed, factor in enumerate((1, 2, 1, 0.5))]
    batch_sizes: list[int] = []
    hook = sized.engine.runner.register_forward_hook(lambda _module, args, _output: batch_sizes.append(len(args[0])))
    together = list(sized.predict_many(images, batch_size=4, crf=True))
    hook.remove()
    assert batch_sizes == [4]
    for image, prediction in zip(images, together, strict=True):
        alone = sized.predict(image, crf=True)
        assert prediction.mask.shape == image.shape[:2]
        assert_close(torch.from_numpy(prediction.probabilities), torch.from_numpy(alone.probabilities))


def test_size_of_a_call_replaces_that_of_the_model(predictor: Predictor, sized: Predictor) -> None:
    image = wave_image(60, 40)
    assert sized.predict(image).summary()["settings"]["size"] == SIZE
    native = sized.predict(image, size="native")
    assert native.summary()["settings"]["size"] == "native"
    assert np.array_equal(native.mask, predictor.predict(image).mask)
    (other,) = sized.predict_many([image], size=64)
    assert other.settings.size == 64
    assert sized.settings.size == SIZE
    with pytest.raises(ValueError, match="size must be 'native' or a number of pixels from 32"):
        sized.predict(image, size=0)


def test_large_size_is_tiled(network: Network) -> None:
    settings = replace(KEEP_ALL, size=300)
    tiled = Predictor(network, settings, device="cpu", precision="float32", max_pixels=256 * 256)
    whole = Predictor(network, settings, device="cpu", precision="float32")
    image = wave_image(600, 600)
    prediction = tiled.predict(image, probabilities=True)
    assert prediction.mask.shape == (600, 600)
    assert np.abs(prediction.probabilities - whole.predict(image).probabilities).mean() < 0.05


def test_memory_hardly_grows_with_the_image() -> None:
    network = tagseg.build_model("resnet18", 20)
    predictor = Predictor(network, replace(KEEP_ALL, size=SIZE), device="cpu", precision="float32")
    peaks = []
    for side in (1000, 4000):
        image = np.zeros((side, side, 3), np.uint8)
        with PeakBytes() as memory:
            predictor.predict(image)
        peaks.append(memory.peak)
    # The masks of all 21 channels would take 1.3 GiB.
    assert peaks[1] < peaks[0] + 64 * 2**20
