"""SBD's annotation files: one MATLAB file per image, with a mask and the categories in it."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagseg.errors import DataError


def categories_present(path: Path) -> list[int]:
    """The categories (1 to 20) that the file lists for its image; the mask beside them is not passed on."""
    return [int(category) for category in np.atleast_1d(_ground_truth(path)["CategoriesPresent"])]


def segmentation(path: Path) -> NDArray[np.uint8]:
    """The mask, [H, W], for evaluation."""
    return np.asarray(_ground_truth(path)["Segmentation"], np.uint8)


def _ground_truth(path: Path) -> Any:
    try:
        from scipy.io import loadmat, matlab
    except ImportError as error:
        raise DataError(f"{path}: reading SBD needs scipy; install it with: pip install 'tagseg[sbd]'") from error
    try:
        return loadmat(path, variable_names="GTcls", squeeze_me=True, simplify_cells=True)["GTcls"]
    except (OSError, ValueError, TypeError, KeyError, NotImplementedError, zlib.error, matlab.MatReadError) as error:
        raise DataError(f"{path}: is not an SBD annotation ({error}); unpack the archive again") from error
