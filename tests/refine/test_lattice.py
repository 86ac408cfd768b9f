import torch

from tagseg.refine._parallel import Workers
from tagseg.refine.lattice import (
    _vertices,
    add,
    barycentric,
    build_lattice,
    elevate,
    enclosing_simplex,
    key_table,
    repeat,
)


def features_of(images: int, pixels: int = 60) -> torch.Tensor:
    return torch.rand(2, images * pixels) * 5


RANGES = [(0.0, 5.0), (0.0, 5.0)]


def test_equal_keys_mean_equal_lattice_points() -> None:
    """Pixels with equal features have equal vertices; images do not share vertices."""
    features = features_of(1, 20).repeat(1, 2)
    keys, weights = _vertices(features, key_table(RANGES, 1, features.device), 1, Workers())
    assert torch.equal(keys[:, :20], keys[:, 20:])
    assert torch.equal(weights[:, :20], weights[:, 20:])
    separate, _ = _vertices(features, key_table(RANGES, 2, features.device), 2, Workers())
    assert not set(separate[:, :20].flatten().tolist()) & set(separate[:, 20:].flatten().tolist())


def test_filter_of_a_batch_equals_single_images() -> None:
    features, values = features_of(2), torch.rand(120, 3)
    batch = build_lattice(features, RANGES, 2, axes=4).filter(values)
    for image in range(2):
        pixels = slice(60 * image, 60 * image + 60)
        single = build_lattice(features[:, pixels], RANGES, 1, axes=4).filter(values[pixels])
        torch.testing.assert_close(batch[pixels], single)


def test_repeat_filters_each_image() -> None:
    lattice, values = build_lattice(features_of(1), RANGES, 1, axes=4), torch.rand(180, 3)
    expected = torch.cat([lattice.filter(part) for part in values.split(60)])
    torch.testing.assert_close(repeat(lattice, 3).filter(values), expected)


def test_add_sums_two_filters() -> None:
    left, right = (build_lattice(features_of(1), RANGES, 1, axes=axes) for axes in (4, 4))
    values = torch.rand(60, 3)
    torch.testing.assert_close(add(left, right).filter(values), left.filter(values) + right.filter(values))


def test_additional_axes_change_nothing() -> None:
    features, values = features_of(1), torch.rand(60, 3)
    few, many = (build_lattice(features, RANGES, 1, axes=axes).filter(values) for axes in (4, 6))
    torch.testing.assert_close(few, many)


def test_barycentric_weights_are_convex() -> None:
    _, rank, offset = enclosing_simplex(elevate(torch.randn(5, 200) * 4))
    weights = barycentric(rank, offset)
    assert torch.equal(rank.sort(0).values, torch.arange(6)[:, None].expand(6, 200))
    torch.testing.assert_close(weights.sum(0), torch.ones(200))
    assert weights.min() > -1e-5
