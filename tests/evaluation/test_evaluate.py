import numpy as np
import pytest

from tagseg.data import MaskDataset
from tagseg.evaluation.evaluate import evaluate
from tagseg.evaluation.metrics import ConfusionMatrix
from tagseg.predict.predictor import Predictor
from tests.evaluation.conftest import COUNT, DATA, MASKS, SIZE


@pytest.mark.parametrize("tta", [False, True])
def test_both_protocols_equal_predict(predictor: Predictor, tta: bool) -> None:
    evaluation = evaluate(predictor, DATA, MASKS, tta=tta, crf=tta, progress=False)
    for protocol in ("predicted-tags", "true-tags"):
        expected = ConfusionMatrix(7)
        for index, name in enumerate(DATA.image_ids):
            image, tags = DATA[index]
            names = [DATA.classes[k] for k in tags.nonzero().flatten()] if protocol == "true-tags" else None
            prediction = predictor.predict(image, tags=names, tta=tta, crf=tta)
            assert prediction.protocol == protocol
            expected.update(prediction.mask, MASKS[name])
        # A batch may round differently from a single image, which can move a pixel.
        assert np.abs(evaluation.confusion[protocol].counts - expected.counts).sum() <= 8
    assert (evaluation.confusion["predicted-tags"].counts != evaluation.confusion["true-tags"].counts).any()


@pytest.mark.parametrize(("batch_size", "expected"), [(None, [1] * COUNT), (3, [3, COUNT - 3])])
def test_network_runs_once_per_image(predictor: Predictor, batch_size: int | None, expected: list[int]) -> None:
    batch_sizes: list[int] = []
    hook = predictor.engine.runner.register_forward_hook(
        lambda _module, args, _output: batch_sizes.append(len(args[0]))
    )
    evaluate(predictor, DATA, MASKS, batch_size=batch_size, progress=False)
    hook.remove()
    assert batch_sizes == expected


def test_batch_size_must_be_positive(predictor: Predictor) -> None:
    with pytest.raises(ValueError, match="batch_size must be 1 or more, got 0"):
        evaluate(predictor, DATA, MASKS, batch_size=0)


def test_predictions_are_resized_to_the_masks(predictor: Predictor) -> None:
    def enlarge(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        return np.repeat(np.repeat(MASKS[name], 2, 0), 3, 1)

    large_masks = MaskDataset(DATA.classes, {name: lambda name=name: enlarge(name) for name in DATA.image_ids})  # type: ignore[misc]
    result = evaluate(predictor, DATA, large_masks, progress=False)
    expected_result = evaluate(predictor, DATA, MASKS, progress=False)
    assert result.confusion["true-tags"].counts.sum() == COUNT * SIZE * SIZE * 6
    assert np.allclose(
        result.confusion["true-tags"].iou, expected_result.confusion["true-tags"].iou, atol=0.05, equal_nan=True
    )


def test_ignored_pixels_and_images_without_masks_do_not_count(predictor: Predictor) -> None:
    void = np.full((SIZE, SIZE), 255, dtype=np.uint8)
    void[:10] = 0
    result = evaluate(predictor, DATA, MaskDataset(DATA.classes, {DATA.image_ids[0]: lambda: void}), progress=False)
    assert (result.images, result.without_masks) == (1, COUNT - 1)
    assert result.confusion["true-tags"].counts.sum() == 10 * SIZE


def test_masks_must_match_the_model_and_the_images(predictor: Predictor) -> None:
    reversed_classes = MaskDataset(
        DATA.classes[::-1], {name: lambda: np.zeros((4, 4), np.uint8) for name in DATA.image_ids}
    )
    with pytest.raises(ValueError, match="the masks have the classes cross, ring"):
        evaluate(predictor, DATA, reversed_classes, progress=False)
    with pytest.raises(ValueError, match="none of the 5 images has a mask"):
        evaluate(predictor, DATA, MaskDataset(DATA.classes, {}), progress=False)


def test_network_is_evaluated_with_the_settings_of_the_paper(predictor: Predictor) -> None:
    result = evaluate(predictor.engine.network, DATA.subset([0]), MASKS, progress=False)
    assert result.settings.thresholds == 0.1
