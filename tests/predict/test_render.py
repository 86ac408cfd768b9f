from dataclasses import replace

import numpy as np

from tagseg.predict.predictor import Predictor
from tagseg.predict.render import palette
from tests.predict.conftest import wave_image


def test_class_colors_are_distinct() -> None:
    colors = palette(5000)
    assert colors[0].tolist() == [0, 0, 0]
    assert colors[[1, 2, 15]].tolist() == [[128, 0, 0], [0, 128, 0], [192, 128, 128]]  # the colors of PASCAL VOC
    assert len(np.unique(colors, axis=0)) == 5000


def test_legend_is_below_the_image(predictor: Predictor) -> None:
    mask = np.zeros((400, 500), np.uint8)
    mask[100:200, 100:300] = 1
    prediction = replace(predictor.predict(wave_image(400, 500)), mask=mask)
    plain, with_legend = prediction.overlay(legend=False), prediction.overlay()
    assert plain.size == (500, 400)
    assert with_legend.width == 500
    assert with_legend.height > 400
    assert np.array_equal(np.array(with_legend)[:400], np.array(plain))
    inside = np.array(plain)[150, 200].astype(int)
    assert inside[0] > inside[1] == inside[2]  # the first class is red in any image
    wide = replace(prediction, mask=np.ones((30, 5000), np.uint8), image=wave_image(30, 5000)).overlay()
    assert wide.width == 2048
    empty = replace(prediction, mask=np.zeros((9, 5), np.uint8), image=wave_image(9, 5)).overlay()
    assert min(empty.size) > 100


def test_long_legend_has_several_lines(predictor: Predictor) -> None:
    prediction = predictor.predict(wave_image(40, 400))
    short = replace(prediction, mask=np.ones((40, 400), np.uint8), scores={"cat": 0.5})
    mask = np.repeat(np.arange(20, dtype=np.uint8), 20)[None].repeat(40, 0)
    scores = {f"class number {k} " * k: 0.5 for k in range(1, 20)}
    many = replace(prediction, mask=mask, scores=scores, class_indices=range(19))
    assert many.labels == tuple(many.scores)
    assert many.overlay().height > short.overlay().height + 100
