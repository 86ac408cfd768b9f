import numpy as np
import pytest
from pycocotools import mask as tools

from tagseg.data.polygons import fill_polygon, polygon_area, region_polygons


def filled(polygons: list[np.ndarray], height: int, width: int) -> np.ndarray:
    """How many polygons cover each pixel."""
    return sum(
        (fill_polygon(polygon, height, width).astype(int) for polygon in polygons), np.zeros((height, width), int)
    )


def test_polygons_cover_exactly_their_region() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        height, width = generator.integers(1, 16, 2).tolist()
        region = generator.random((height, width)) < generator.random()
        polygons = region_polygons(region)
        assert np.array_equal(filled(polygons, height, width), region)
        assert sum(polygon_area(polygon) for polygon in polygons) == pytest.approx(region.sum())
        if polygons:  # pycocotools, too, reads the corners as corners of pixels
            encoded = tools.frPyObjects([polygon.ravel().tolist() for polygon in polygons], height, width)
            assert np.array_equal(tools.decode(tools.merge(encoded)), region)


def test_hole_is_joined_to_the_outline_and_diagonal_pixels_are_apart() -> None:
    ring = np.ones((3, 3), bool)
    ring[1, 1] = False
    (polygon,) = region_polygons(ring)
    assert len(polygon) == 4 + 4 + 2
    assert polygon_area(polygon) == 8
    assert len(region_polygons(np.eye(3, dtype=bool))) == 3
    assert region_polygons(np.zeros((4, 4), bool)) == []


def test_corners_between_pixels_and_outside_the_image() -> None:
    triangle = np.array([[-5.0, -5.0], [20.0, -5.0], [-5.0, 20.0]])
    region = fill_polygon(triangle, 10, 12)
    rows, columns = np.mgrid[:10, :12]
    assert np.array_equal(region, (rows + 0.5) + (columns + 0.5) < 15)
    assert not fill_polygon(np.array([[1.0, 1.0], [5.0, 1.0], [3.0, 1.0]]), 4, 8).any()
    square = fill_polygon(np.array([[0.6, 0.6], [2.4, 0.6], [2.4, 2.4], [0.6, 2.4]]), 4, 4)
    assert np.argwhere(square).tolist() == [[1, 1]]
