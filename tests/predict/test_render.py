from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tagseg.predict.predictor import Predictor
from tagseg.predict.render import (
    DEUTERANOPIA,
    PROTANOPIA,
    add_legend,
    blend,
    draw_legend,
    overlay_palette,
    palette,
    perceived,
)
from tests.predict.conftest import Pixels, wave_image


def distances(colors: Pixels, vision: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Distance of each two colors in OKLab, infinite of a color to itself."""
    lab = perceived(colors, vision)
    result: NDArray[np.float64] = np.sqrt(((lab[:, None] - lab[None]) ** 2).sum(-1))
    np.fill_diagonal(result, np.inf)
    return result


def test_class_colors_are_distinct() -> None:
    colors = palette(5000)
    assert colors[0].tolist() == [0, 0, 0]
    assert colors[[1, 2, 15]].tolist() == [[128, 0, 0], [0, 128, 0], [192, 128, 128]]  # the colors of PASCAL VOC
    assert len(np.unique(colors, axis=0)) == 5000


def test_colors_of_overlays_can_be_told_apart() -> None:
    colors = overlay_palette(21)
    assert colors[:3].tolist() == [[0, 0, 0], [255, 0, 0], [30, 60, 255]]
    # Two colors that are 0.02 apart can just be told apart. Brightening VOC's would leave 0.058.
    assert distances(colors).min() > 0.1
    for vision in (DEUTERANOPIA, PROTANOPIA):
        assert distances(colors, vision).min() > 0.06
    lightness, *chroma = perceived(colors[1:]).T
    assert lightness.min() > 0.5  # not lost in shadows
    assert np.hypot(*chroma).min() > 0.1  # nor among grays


def test_many_classes_have_colors_of_their_own_beside_very_different_neighbors() -> None:
    colors = overlay_palette(2001)
    assert len(np.unique(colors, axis=0)) == 2001
    assert np.array_equal(colors[:21], overlay_palette(21))
    assert np.diagonal(distances(colors[:256]), 1).min() > 0.04
    assert len(overlay_palette(60_000)) == 60_000


def test_overlay_aligns_with_the_image(predictor: Predictor) -> None:
    mask = np.zeros((400, 500), np.uint8)
    mask[100:200, 100:300] = 1
    prediction = replace(predictor.predict(wave_image(400, 500)), mask=mask)
    plain, with_legend = prediction.overlay(), prediction.overlay(legend=True)
    assert plain.size == (500, 400)
    assert with_legend.width > 500
    assert np.array_equal(np.array(with_legend)[:400, :500], np.array(plain))
    inside = np.array(plain)[150, 200].astype(int)
    assert inside[0] > inside[1] == inside[2]  # the first class is red in any image


def test_large_overlay_is_blended_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    image, mask = wave_image(70, 90), np.eye(70, 90, dtype=np.uint8)
    whole = blend(image, mask)
    monkeypatch.setattr("tagseg.predict.render._BAND_PIXELS", 500)
    assert np.array_equal(blend(image, mask), whole)


@pytest.mark.parametrize("value", [0, 255])
def test_outline_shows_on_any_background(value: int) -> None:
    image = np.full((40, 40, 3), value, np.uint8)
    mask = np.zeros((40, 40), np.uint8)
    mask[10:30, 10:30] = 1
    row = blend(image, mask, alpha=0)[20].mean(1)
    assert row[10] - row[9] > 150
    assert np.array_equal(blend(image, mask, alpha=0)[12:28, 12:28], image[12:28, 12:28])
    assert blend(image, mask, alpha=1)[20, 20].tolist() == [255, 0, 0]


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_is_an_opacity(alpha: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        blend(wave_image(4, 4), np.zeros((4, 4), np.uint8), alpha=alpha)


def test_legend_has_every_class_and_no_text_is_cut(predictor: Predictor) -> None:
    few = draw_legend([(1, "cat"), (2, "dog")])
    many = draw_legend([(value, f"class {value}") for value in range(1, 200)])
    assert many.height > few.height
    assert many.width > 5 * few.width
    colors = {color for _, color in many.getcolors(1 << 20) or []}
    assert {tuple(color) for color in overlay_palette(200)[1:].tolist()} <= colors
    long = add_legend(wave_image(30, 50), [(1, "a very long name " * 20)])
    assert 300 < long.width < 600
    empty = draw_legend([])
    assert empty.width > few.width / 2
    image = wave_image(9, 5)
    small = replace(predictor.predict(image), mask=np.zeros((9, 5), np.uint8)).overlay(legend=True)
    assert np.abs(np.array(small)[:9, :5].astype(int) - image).max() <= 52  # darkened, no larger
    assert small.height > 9
