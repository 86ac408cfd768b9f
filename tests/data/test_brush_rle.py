import numpy as np
import pytest

from tagseg.data.brush_rle import decode_brush, encode_brush

# What label_studio_sdk.converter.brush.mask2rle encodes.
REGION = np.array([[1, 1, 0], [0, 0, 0]], bool)
ENCODED = [0, 0, 0, 24, 57, 27, 252, 255, 247, 192, 0]


def test_golden_bytes() -> None:
    assert encode_brush(REGION) == ENCODED
    assert np.array_equal(decode_brush(ENCODED, 2, 3), REGION)


def test_regions_come_back() -> None:
    generator = np.random.default_rng(0)
    for scale in (1, 3, 40):
        small = generator.random((7, 9)) < 0.5
        region = np.kron(small, np.ones((scale, scale), bool))
        assert np.array_equal(decode_brush(encode_brush(region), *region.shape), region)
    large = np.zeros((300, 400), bool)  # with runs of more than 65,536 values
    large[200:] = True
    assert np.array_equal(decode_brush(encode_brush(large), 300, 400), large)


def test_single_values_and_channels_are_decoded() -> None:
    """Two pixels, not as runs but as eight values, of which the fourth and the eighth are opacities."""
    values = [9, 9, 9, 200, 255, 255, 255, 100]
    bits = f"{8:032b}{7:05b}{2:04b}{3:04b}{7:04b}{15:04b}" + f"0{0:02b}{7:03b}" + "".join(f"{v:08b}" for v in values)
    bits += "0" * (-len(bits) % 8)
    encoded = [int(bits[start : start + 8], 2) for start in range(0, len(bits), 8)]
    assert decode_brush(encoded, 1, 2).tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        ([], "they end too early"),
        (encode_brush(REGION)[:-2], "they end too early"),
        (encode_brush(np.ones((2, 4), bool)), "they have 32 values of 8 bits, not 3 x 2 x 4 of 8"),
        ([*encode_brush(REGION)[:7], *[255] * 9], "they reach beyond the image"),
        ([256], "byte"),
    ],
)
def test_damaged_run_lengths_are_errors(encoded: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_brush(encoded, 2, 3)
