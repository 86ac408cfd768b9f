"""Read an export with the tool that it is made for.

ultralytics, datumaro and label-studio-sdk need other versions of packages than tagseg, so that they have an environment
of their own, which `make test-formats` installs. The scripts of this folder run there: PYTHON SCRIPT EXPORT OUT.npz
writes the mask of every image, and under the name "classes" the names of the masks' values from 1.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

_ROOT = Path(__file__).parents[3]
_PYTHON = Path(os.environ.get("TAGSEG_FORMATS_PYTHON", _ROOT / ".venv-formats" / "bin" / "python"))

needs_real_tools = pytest.mark.skipif(
    not _PYTHON.is_file(), reason=f"needs the annotation tools: make test-formats, or TAGSEG_FORMATS_PYTHON={_PYTHON}"
)


def read_with(tool: str, export: Path, folder: Path) -> tuple[list[str], dict[str, NDArray[np.uint8]]]:
    """Class names and masks that a tool reads.

    Args:
        tool: Name of a script of this folder.
        export: What tagseg exported.
        folder: Folder for temporary files.
    """
    out = folder / f"{tool}.npz"
    command = [str(_PYTHON), str(Path(__file__).with_name(f"{tool}.py")), str(export), str(out)]
    environment = {**os.environ, "YOLO_CONFIG_DIR": str(folder), "YOLO_OFFLINE": "true", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(out) as arrays:
        masks = {name: arrays[name] for name in arrays.files}
    return masks.pop("classes").tolist(), masks
