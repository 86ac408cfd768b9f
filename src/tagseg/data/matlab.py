"""Numbers in a struct of a MATLAB 5 file, as SBD's annotations are.

General readers allocate the sizes that a file claims, gigabytes for a false file of some hundred bytes. This one never
holds more than the file's own content, of which it unpacks up to 64 MiB.
"""

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagseg.data.limits import read_file

_MAX_BYTES = 2**26
_HEADER = 128
_COMPRESSED = 15  # type of an element
_STRUCT = 2  # class of a matrix
_DTYPES = {1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}


def read_struct_field(path: Path, name: str, field: str) -> NDArray[Any]:
    """Read an array of numbers in a field of a struct.

    Args:
        path: The file.
        name: Name of the variable that is a struct.
        field: Name of its field.

    Raises:
        ValueError: The file is damaged, or has no such field.
    """
    content = memoryview(read_file(path, _MAX_BYTES))
    if bytes(content[126:128]) != b"IM":
        raise ValueError("no MATLAB 5 file")
    for kind, data in _elements(content[_HEADER:]):
        for _, matrix in _unpack(data) if kind == _COMPRESSED else [(kind, data)]:
            parts = _elements(matrix)
            flags, _, variable = (next(parts, (0, memoryview(b"")))[1] for _ in range(3))
            if flags[:1] == bytes([_STRUCT]) and variable == name.encode():
                return _field(parts, field)
    raise ValueError(f"no struct {name}")


def _unpack(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    try:
        return _elements(memoryview(zlib.decompressobj().decompress(data, _MAX_BYTES)))
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _field(parts: Iterator[tuple[int, memoryview]], field: str) -> NDArray[Any]:
    """Numbers of a field, from the elements of a struct after its name."""
    length = int.from_bytes(next(parts, (0, b""))[1], "little")
    names = bytes(next(parts, (0, b""))[1])
    if not length or len(names) % length:
        raise ValueError("damaged names of fields")
    fields = [names[start : start + length].rstrip(b"\0") for start in range(0, len(names), length)]
    for (_, matrix), known in zip(parts, fields, strict=False):
        if known == field.encode():
            return _numbers(matrix)
    raise ValueError(f"no field {field}")


def _numbers(matrix: memoryview) -> NDArray[Any]:
    parts = list(_elements(matrix))
    if len(parts) < 4 or parts[3][0] not in _DTYPES or len(parts[1][1]) % 4:
        raise ValueError("no numbers")
    sizes = [int(size) for size in np.frombuffer(parts[1][1], "<i4")]
    kind, data = parts[3]
    if min(sizes, default=-1) < 0 or math.prod(sizes) * np.dtype(_DTYPES[kind]).itemsize != len(data):
        raise ValueError(f"{len(data)} bytes for an array of {sizes}")
    return np.frombuffer(data, _DTYPES[kind]).reshape(sizes, order="F")


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each element."""
    while len(data) >= 8:
        kind, size = (int.from_bytes(data[start : start + 4], "little") for start in (0, 4))
        start, end = 8, 8 + size
        if kind >> 16:  # a small element: its size, and its content in place of a size
            kind, size = kind & 0xFFFF, kind >> 16
            start, end = 4, 4 + size
        if size > len(data) - start:
            raise ValueError(f"cut off: an element of {size} bytes, {len(data) - start} are left")
        yield kind, data[start:end]
        data = data[end if kind == _COMPRESSED else -(-end // 8) * 8 :]
