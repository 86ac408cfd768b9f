"""Images of the report: overlays, colors and thumbnails."""

import numpy as np
import pytest

from tagseg.data import shapes
from tagseg.report.gallery import class_colors, paint, side_for, thumbnail, to_data_uri


def test_painted_pixels_show_class_background_and_ignored() -> None:
    image = np.full((4, 6, 3), (200, 100, 0), dtype=np.uint8)
    painted = paint(image, np.array([[0, 1, -1]]))
    background, ignored = painted[0, 0], painted[0, 5]
    assert background[0] > background[2]
    assert ignored[0] == ignored[1] == ignored[2] < background.mean()
    assert painted[2, 3].tolist() != background.tolist()


def test_legend_has_the_colors_of_the_images() -> None:
    gray = np.full((9, 9, 3), 128, dtype=np.uint8)
    painted = paint(gray, np.full((9, 9), 2))
    assert class_colors(3)[2] == "#" + bytes(painted[4, 4].tolist()).hex()
    assert len(set(class_colors(20))) == 21


@pytest.mark.parametrize("count", [1, 60, 500])
def test_images_fit_into_the_page(count: int) -> None:
    detailed = shapes(1, size=512).images.read(0)  # noisy, so that JPEG compresses it badly
    assert len(to_data_uri(thumbnail(detailed, side_for(count)))) * count < 2_900_000


def test_thumbnails_keep_the_aspect_ratio() -> None:
    assert thumbnail(np.zeros((100, 1000, 3), dtype=np.uint8), 320).shape == (32, 320, 3)
    assert thumbnail(np.zeros((48, 64, 3), dtype=np.uint8), 320).shape == (144, 192, 3)
    assert thumbnail(np.zeros((3, 1000, 3), dtype=np.uint8), 64).shape[0] >= 1
