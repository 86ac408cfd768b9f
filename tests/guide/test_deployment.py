import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tagseg
from tests.guide.commands import GUIDE, commands, run_command

# Any import of torch fails, as where it is not installed.
WITHOUT_TORCH = "import sys, runpy; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"


def script() -> str:
    """The page's script without torch."""
    text = (GUIDE / "deployment.md").read_text(encoding="utf-8")
    (block,) = (b for b in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if "onnxruntime" in b)
    return str(block)


@pytest.mark.slow
def test_commands_of_the_page_work(reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in commands("deployment"):
        run_command(command, monkeypatch)
    for folder in ("predictions", "from-folder"):
        assert len(list((reader_folder / folder).glob("*_mask.png"))) == 40
    photo = Image.open(next((reader_folder / "photos").iterdir())).resize((200, 140))
    photo.save("photo.png")
    Path("segment.py").write_text(script(), encoding="utf-8")
    arguments = ["segment.py", "model.onnx", "photo.png", "mask.png"]
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True, check=True
    )
    expected = tagseg.load("runs/photos", device="cpu", precision="float32").predict("photo.png")
    mask = np.asarray(Image.open("mask.png"))
    assert (mask == expected.mask).mean() >= 0.999
    assert result.stdout.strip() == (", ".join(expected.labels) or "no known class found")


def test_the_script_is_short() -> None:
    lines = [line for line in script().splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 25
