from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tagseg
from tagseg.data import shapes
from tagseg.predict.render import palette
from tagseg.reproduction.mask_sheet import draw_masks
from tagseg.reproduction.runner import open_voc
from tests.reproduction.fake_runs import write_packed_shapes

ROWS = ("prediction", "with CRF", "ground truth")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    network = tagseg.build_model("test_resnet", sorted(shapes(1).classes), width=16)
    tagseg.save_model(network, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_sheet_has_a_column_for_each_image_with_a_mask(model: Path, tmp_path: Path) -> None:
    """The training images are 24, and five of them have masks."""
    source = open_voc(write_packed_shapes(tmp_path / "voc")).train
    masks = source.open_masks()
    present = {int(value) for name in masks for value in np.unique(masks[name])}
    path = draw_masks(model, source, tmp_path / "images.png", threshold=1.0)  # no class is predicted
    with Image.open(path) as sheet:
        margin = sheet.width - 5 * (150 + 8)
        assert 0 < margin < 150
        colors = [
            {color for _, color in tile.getcolors(1 << 16) or ()}
            for row in range(len(ROWS))
            for tile in [sheet.crop((margin, 23 + row * 158, sheet.width - 8, 23 + row * 158 + 150))]
        ]
    background, white = (0, 0, 0), (255, 255, 255)
    assert colors[0] == colors[1] == {background, white}
    assert colors[2] == {white, *(tuple(palette(256)[value]) for value in present)}
