import copy
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tagseg
from tagseg.data import DataError, images
from tagseg.models import Network
from tagseg.predict.predictor import Predictor, load
from tagseg.predict.settings import InferenceSettings
from tests.compare import assert_close
from tests.predict.conftest import KEEP_ALL, Pixels, normalize, wave_image


def test_prediction_equals_the_network(network: Network, predictor: Predictor, image: Pixels) -> None:
    prediction = predictor.predict(image)
    with torch.no_grad():
        output = network(normalize(network, Image.fromarray(image)))
    expected = torch.cat([output.masks[0, :1] ** 3, output.masks[0, 1:]])
    assert_close(torch.from_numpy(prediction.probabilities), expected)
    assert np.array_equal(prediction.mask, expected.argmax(0).numpy())
    assert list(prediction.scores.values()) == pytest.approx(output.scores.sigmoid()[0].tolist(), abs=1e-5)
    assert prediction.settings.scales == (1.0,)


def test_classes_come_from_scores_unless_tags_are_given(network: Network, image: Pixels) -> None:
    strict = Predictor(network, InferenceSettings(thresholds=1.0), device="cpu", precision="float32")
    prediction = strict.predict(image)
    assert (prediction.labels, prediction.protocol) == ((), "predicted-tags")
    assert not prediction.mask.any()
    assert set(prediction.scores) == {"cat", "dog"}
    tagged = strict.predict(image, tags=["dog"])
    assert (tagged.labels, tagged.protocol) == (("dog",), "true-tags")
    assert (tagged.probabilities[1] == 0).all()
    assert set(np.unique(tagged.mask)) <= {0, 2}


def test_unknown_tag_suggests_the_nearest(predictor: Predictor, image: Pixels) -> None:
    with pytest.raises(ValueError, match="unknown tag 'dogs'; known: cat, dog. Did you mean 'dog'"):
        predictor.predict(image, tags=["dogs"])


@pytest.mark.parametrize("size", [(1, 1), (1, 70), (31, 33), (20, 5)])
def test_tiny_images_are_predicted(predictor: Predictor, size: tuple[int, int]) -> None:
    prediction = predictor.predict(wave_image(*size), tta=True, crf=True)
    assert prediction.mask.shape == size
    assert prediction.probabilities.shape == (3, *size)
    assert np.isfinite(prediction.probabilities).all()


def test_crf_refines_the_kept_classes(predictor: Predictor, image: Pixels) -> None:
    prediction = predictor.predict(image, tags=["cat"], crf=True)
    plain = predictor.predict(image, tags=["cat"])
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    expected = tagseg.dense_crf(tensor, torch.from_numpy(plain.probabilities[:2]))
    assert_close(torch.from_numpy(prediction.probabilities[:2]), expected)
    assert (prediction.probabilities[2] == 0).all()
    assert prediction.crf
    assert not plain.crf


def test_crf_of_a_batch_equals_single_images(network: Network) -> None:
    settings = InferenceSettings(thresholds=0.0)
    predictor = Predictor(network, settings, device="cpu", precision="float32")
    images = [wave_image(64, 80, seed) for seed in range(3)]
    scores = sorted(score for image in images for score in predictor.predict(image).scores.values())
    # This threshold keeps different numbers of classes in the images.
    predictor.settings = replace(settings, thresholds=(scores[2] + scores[3]) / 2)
    for image, prediction in zip(images, predictor.predict_many(images, batch_size=3, crf=True), strict=True):
        expected = predictor.predict(image, crf=True)
        assert prediction.class_indices == expected.class_indices
        assert_close(torch.from_numpy(prediction.probabilities), torch.from_numpy(expected.probabilities))
        assert np.array_equal(prediction.mask, prediction.probabilities.argmax(0))


def test_all_image_types_give_the_same_mask(predictor: Predictor, image: Pixels, tmp_path: Path) -> None:
    file = tmp_path / "photo.png"
    Image.fromarray(image).save(file)
    expected = predictor.predict(image).mask
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    for image_input in (file, str(file), Image.fromarray(image), tensor, tensor / 255, image / 255):
        assert np.array_equal(predictor.predict(image_input).mask, expected)
    assert predictor.predict(file).name == "photo"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((8, 8, 2), np.uint8), r"1, 3 or 4 channels, or \[H, W\], got \[8, 8, 2\]"),
        (np.zeros((8, 8, 3), np.int64), "must be uint8, or floating point"),
        (np.full((8, 8), 7.0), r"in \[0, 1\], got 7.0"),
        (17, "got int"),
    ],
)
def test_wrong_images_are_refused(predictor: Predictor, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        predictor.predict(value)  # type: ignore[call-overload]


def test_network_with_one_channel_gets_gray_images(image: Pixels) -> None:
    gray_predictor = Predictor(
        tagseg.build_model("resnet18", ["a"], in_channels=1), KEEP_ALL, device="cpu", precision="float32"
    )
    gray_image = np.repeat(image.mean(2, keepdims=True).round().astype(np.uint8), 3, 2)
    assert gray_predictor.predict(image).mask.shape == (64, 80)
    assert np.array_equal(gray_predictor.predict(gray_image).mask, gray_predictor.predict(gray_image[..., 0]).mask)
    with pytest.raises(ValueError, match="takes 4 channels, but images are RGB"):
        Predictor(tagseg.build_model("resnet18", ["a"], in_channels=4))


def test_background_of_cam_can_be_set(image: Pixels) -> None:
    cam = tagseg.build_cam("resnet18", ["a", "b"])
    plain = Predictor(cam, device="cpu", precision="float32").predict(image, tags=["a"])
    assert plain.probabilities[0] == pytest.approx(0.1)
    all_background = replace(plain.settings, background=2.0)
    assert not Predictor(cam, all_background, device="cpu", precision="float32").predict(image, tags=["a"]).mask.any()
    with pytest.raises(ValueError, match="settings.background is for CAM"):
        Predictor(tagseg.build_model("resnet18", ["a", "b"]), all_background)


def test_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere: does not exist; name a run folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="~nouser/photos: does not exist"):
        load("~nouser/photos")
    with pytest.raises(ValueError, match="this folder has no model.safetensors"):
        load(tmp_path)


def test_wrong_options_are_refused(network: Network) -> None:
    with pytest.raises(ValueError, match="unknown precision 'fp16'; known: auto, bfloat16, float32"):
        Predictor(network, precision="fp16")
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        Predictor(network, device="gpu")
    with pytest.raises(ValueError, match="max_pixels must be at least 65536"):
        Predictor(network, max_pixels=100)


def test_network_stays_in_training_mode(image: Pixels) -> None:
    network = tagseg.build_model("resnet18", ["a"]).train()
    predictor = Predictor(network, KEEP_ALL, device="cpu", precision="float32")
    first, second = predictor.predict(image), predictor.predict(image)
    assert network.training
    assert np.array_equal(first.probabilities, second.probabilities)


def test_half_precision_is_close_to_full_precision(network: Network, predictor: Predictor, image: Pixels) -> None:
    half = Predictor(network, KEEP_ALL, device="cpu", precision="bfloat16").predict(image)
    assert half.probabilities.dtype == np.float32
    assert np.abs(half.probabilities - predictor.predict(image).probabilities).mean() < 0.02


def test_batches_equal_single_images_in_the_same_order(predictor: Predictor, folder: Path) -> None:
    single = list(predictor.predict_many([folder, wave_image(64, 80)]))
    batched = list(predictor.predict_many([folder, wave_image(64, 80)], batch_size=3))
    assert [prediction.name for prediction in batched] == ["a", "b", "cats/c", "cats/d", "image-0005"]
    for expected, prediction in zip(single, batched, strict=True):
        assert prediction.name == expected.name
        assert np.abs(prediction.probabilities - expected.probabilities).max() < 1e-4


def test_list_keeps_all_its_entries(predictor: Predictor, folder: Path) -> None:
    assert [prediction.name for prediction in predictor.predict([folder / "a.png"] * 2)] == ["a", "a-2"]


def test_damaged_images_raise_or_are_skipped(predictor: Predictor, folder: Path) -> None:
    (folder / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match="broken.jpg: is not an image"):
        list(predictor.predict_many(folder))
    stream = predictor.predict_many(folder, skip_bad=True)
    assert len(list(stream)) == 4
    assert len(stream.skipped) == 1
    assert "broken.jpg" in stream.skipped[0]


def test_predict_refuses_a_folder_of_images(predictor: Predictor, folder: Path) -> None:
    with pytest.raises(ValueError, match="holds 4 images; use predict_many"):
        predictor.predict(folder)
    with pytest.raises(ValueError, match="batch_size must be 1 or more, got 0"):
        list(predictor.predict_many(folder, batch_size=0))


@pytest.mark.parametrize("crf", [False, True])
def test_very_large_files_are_reduced_but_their_masks_are_not(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crf: bool
) -> None:
    file = tmp_path / "a.png"
    Image.fromarray(wave_image(300, 401)).save(file)
    predictor = Predictor(network, replace(KEEP_ALL, size=64), device="cpu", precision="float32")
    expected = predictor.predict(file, crf=crf)
    monkeypatch.setattr(images, "MAX_DECODED_PIXELS", 40_000)
    for prediction in (predictor.predict(file, crf=crf), *predictor.predict_many(file, crf=crf)):
        assert prediction.image.shape == (150, 201, 3)
        assert prediction.mask.shape == prediction.confidence.shape == (300, 401)
        assert (prediction.mask == expected.mask).mean() > 0.99
        assert list(prediction.scores.values()) == pytest.approx(list(expected.scores.values()), abs=0.01)
        assert prediction.overlay().size == (201, 150)
        assert prediction.summary()["size"] == {"width": 401, "height": 300}
        assert np.abs(prediction.confidence - expected.confidence).mean() < 0.01
    assert predictor.predict(file, size="native").image.shape == (300, 401, 3)


def test_tiles_are_reported_in_their_order(predictor: Predictor) -> None:
    tiled = Predictor(predictor.engine.network, predictor.settings, device="cpu", max_pixels=2**16, optimize=False)
    stream = tiled.predict_many([wave_image(300, 500)])
    steps: list[tuple[int, int]] = []
    list(stream.iterate(on_tile=lambda done, total: steps.append((done, total))))
    total = len(steps)
    assert total > 2
    assert steps == [(number, total) for number in range(total)]


def test_pickled_predictor_predicts_the_same(predictor: Predictor, image: Pixels) -> None:
    again = pickle.loads(pickle.dumps(predictor))
    assert repr(again) == repr(predictor)
    assert again.settings == predictor.settings
    assert np.array_equal(again.predict(image).mask, predictor.predict(image).mask)
    assert copy.copy(predictor).engine is predictor.engine
