import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tagseg
from tagseg.training.logging import read_metrics
from tests.guide.commands import GUIDE, commands, run_command
from tests.training.small_run import SETTINGS

ROOT = Path(__file__).parents[2]


def launch(command: str, folder: Path) -> str:
    """Run a command that starts processes, with settings that make a training short, and give what it prints."""
    program, *arguments = shlex.split(command)
    short = [f"--set={setting}" for setting in (*SETTINGS, "training.epochs=2")]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *arguments, *short, "--workers=0"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, f"{command}\n{result.stderr[-3000:]}"
    return result.stdout


@pytest.mark.usefixtures("reader_folder")
def test_parquet_is_read_by_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = (command for command in commands("machines") if command.startswith("tagseg predict"))
    run_command(command.replace("--ray local", ""), monkeypatch)
    (example,) = re.findall(r"^```python\n(.*?)^```", (GUIDE / "machines.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert len(names["masks"]) == 40
    last = names["row"]["name"]
    assert names["mask"].size == (48, 48)
    (loaded,) = (row["mask"] for row in names["masks"] if row["name"] == last)
    assert np.array_equal(np.array(loaded), np.array(names["mask"]))


@pytest.mark.slow
def test_accelerate_trains_in_two_processes(reader_folder: Path) -> None:
    (command,) = commands("machines", program="accelerate")
    assert launch(command, reader_folder).count("Trained: ") == 1
    assert read_metrics(reader_folder / "runs" / "two")[0]["processes"] == 2
    assert tagseg.load(reader_folder / "runs" / "two").settings.thresholds_from == "tags"
