"""Run lengths of Label Studio's brush: a bit stream of the bytes of an RGBA image, of which the alpha channel counts.

The stream has the number of bytes (32 bits), the bits of a value less one (5), and four times the bits of a length less
one (4). Blocks follow: a bit that is 1 for a run of equal values and 0 for values that differ, which of the four bits a
length has (2), the length less one, and one value or all of them. The format is that of the package @thi.ng/rle-pack.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_CHANNELS = 4
_VALUE_BITS = 8
_LENGTH_BITS = (3, 4, 8, 16)  # of runs, chosen by their length
_HEADER = (32, 5, 4, 4, 4, 4)  # bits
_OPAQUE = 255


def encode_brush(region: NDArray[np.bool_]) -> list[int]:
    """Encode a region, [H, W], as the bytes that Label Studio lists in its JSON."""
    values = region.ravel()
    starts = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
    lengths = np.diff(np.append(starts, values.size)) * _CHANNELS
    # Longer runs are divided: all but the last part have the longest possible length.
    longest = 1 << _LENGTH_BITS[-1]
    parts = -(-lengths // longest)
    is_last = np.zeros(parts.sum(), bool)
    is_last[np.cumsum(parts) - 1] = True
    part_lengths = np.where(is_last, np.repeat(lengths - (parts - 1) * longest, parts), longest)
    part_values = np.repeat(np.where(values[starts], _OPAQUE, 0), parts)
    kinds = np.searchsorted([1 << bits for bits in _LENGTH_BITS], part_lengths)
    length_bits = np.array(_LENGTH_BITS)[kinds]
    codes = (((4 | kinds) << length_bits | (part_lengths - 1)) << _VALUE_BITS) | part_values
    code_bits = 3 + length_bits + _VALUE_BITS
    header = [values.size * _CHANNELS, _VALUE_BITS - 1, *(bits - 1 for bits in _LENGTH_BITS)]
    bits = np.concatenate([_to_bits(np.array(header), np.array(_HEADER)), _to_bits(codes, code_bits)])
    encoded: list[int] = np.packbits(bits).tolist()
    return encoded


def decode_brush(encoded: Sequence[int], height: int, width: int) -> NDArray[np.bool_]:
    """Decode a region, [H, W]: the pixels of which more than half is opaque.

    Raises:
        ValueError: The bytes are not run lengths of an image of this size.
    """
    stream = _BitStream(bytes(encoded))
    count, value_bits, *length_bits = (stream.read(bits) for bits in _HEADER)
    if count != height * width * _CHANNELS or value_bits + 1 != _VALUE_BITS:
        raise ValueError(f"they have {count} values of {value_bits + 1} bits, not {width} x {height} x 4 of 8")
    values: list[int] = []
    lengths: list[int] = []
    done = 0
    while done < count:
        is_run = stream.read(1)
        length = 1 + stream.read(1 + length_bits[stream.read(2)])
        if length > count - done:
            raise ValueError("they reach beyond the image")
        done += length
        if is_run:
            values.append(stream.read(_VALUE_BITS))
            lengths.append(length)
        else:
            values.extend(stream.read(_VALUE_BITS) for _ in range(length))
            lengths.extend([1] * length)
    alpha = np.repeat(np.array(values, np.uint8), lengths)[_CHANNELS - 1 :: _CHANNELS]
    return alpha.reshape(height, width) > _OPAQUE // 2


def _to_bits(numbers: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Bits of numbers in a row, of each as many as its size says, the highest first."""
    positions = np.arange(sizes.max())[None]
    bits = ((numbers[:, None] >> (sizes[:, None] - 1 - positions).clip(0)) & 1).astype(np.uint8)
    selected: NDArray[np.uint8] = bits[positions < sizes[:, None]]
    return selected


class _BitStream:
    """Bits of bytes, the highest of each byte first."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def read(self, size: int) -> int:
        """Read a number of up to 32 bits."""
        if self._position + size > 8 * len(self._data):
            raise ValueError("they end too early")
        first = self._position // 8
        window = int.from_bytes(self._data[first : first + 5].ljust(5, b"\0"))
        self._position += size
        return window >> (8 * (first + 5) - self._position) & ((1 << size) - 1)
