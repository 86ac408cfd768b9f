"""Readers on damaged files: an error of one line or a result, in bounded time and memory, and never a traceback.

TAGSEG_TORTURE_SEED chooses others.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.conftest import TRIALS
from tests.torture.readers import READERS


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_end_in_one_line(name: str, tmp_path: Path) -> None:
    seed = os.environ.get("TAGSEG_TORTURE_SEED", "0")
    command = [sys.executable, "-m", "tests.torture.run_reader", name, str(tmp_path), str(100 * TRIALS), seed]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-6000:]
