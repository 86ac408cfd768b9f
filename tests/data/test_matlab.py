"""Reading SBD's MATLAB files: the same numbers as SciPy's reader, and no memory for sizes that are only claimed."""

import resource
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from tagseg.data.matlab import read_struct_field


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float64])
def test_fields_are_those_that_scipy_wrote(tmp_path: Path, dtype: type, compressed: bool) -> None:
    mask: NDArray[Any] = np.random.default_rng(0).integers(0, 21, (33, 50)).astype(dtype)
    fields = {"Boundaries": np.ones((20, 1)), "Segmentation": mask, "CategoriesPresent": np.array([[3], [20]])}
    variables = {"other": np.ones(3), "GTcls": fields}
    scipy.io.savemat(tmp_path / "a.mat", variables, do_compression=compressed)
    assert np.array_equal(read_struct_field(tmp_path / "a.mat", "GTcls", "Segmentation"), mask)
    assert read_struct_field(tmp_path / "a.mat", "GTcls", "CategoriesPresent").ravel().tolist() == [3, 20]
    for name, field in (("GTcls", "Missing"), ("GTinst", "Segmentation")):
        with pytest.raises(ValueError, match="no (field Missing|struct GTinst)"):
            read_struct_field(tmp_path / "a.mat", name, field)


def test_claimed_sizes_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"GTcls": {"Segmentation": np.ones((40, 50), np.uint8)}})
    content = path.read_bytes().replace(struct.pack("<ii", 40, 50), struct.pack("<ii", 120_000, 120_000))
    path.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"2000 bytes for an array of \[120000, 120000\]"):
        read_struct_field(path, "GTcls", "Segmentation")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_any_cut_file_is_a_value_error(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"GTcls": {"Segmentation": np.ones((4, 5), np.uint8)}})
    content = path.read_bytes()
    for length in range(0, len(content) - 8, 7):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="."):
            read_struct_field(path, "GTcls", "Segmentation")
