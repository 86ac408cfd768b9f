"""Run the notebooks of the documentation and keep what they show: python -m tools.notebooks docs/notebooks"""

import base64
import io
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

from tagseg.errors import DataError
from tools._documents import run_tool

_QUALITY = 85  # of the JPEGs


def execute(path: Path, folder: Path) -> Any:
    """Run a notebook from its first cell to its last.

    Args:
        path: The notebook.
        folder: Folder to run it in, which gets the files that it writes.
    """
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=600, record_timing=False, resources=resources).execute()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        # Warnings of libraries are about the machine, and name its folders.
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if png := output.get("data", {}).pop("image/png", None):
                output["data"]["image/jpeg"] = _as_jpeg(png)
    notebook.metadata["language_info"] = {"name": "python"}  # not the version of whoever ran it
    return notebook


def run_all(folder: Path) -> None:
    """Run all notebooks of a folder, and write their outputs into them.

    Args:
        folder: Folder of the notebooks.
    """
    paths = sorted(folder.glob("*.ipynb"))
    if not paths:
        raise DataError(f"{folder}: holds no notebook", "name a folder with .ipynb files")
    for path in paths:
        with tempfile.TemporaryDirectory() as empty:
            notebook = execute(path, Path(empty))
        nbformat.write(notebook, path)


def _as_jpeg(png: str) -> str:
    """The image as JPEG, in base64 like the PNG: photos are a tenth of the size."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").save(buffer, "JPEG", quality=_QUALITY)
    return base64.b64encode(buffer.getvalue()).decode()


if __name__ == "__main__":
    run_tool(run_all, __doc__, "folder")
