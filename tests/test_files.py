import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagseg._files import has_no_files, hold_folder, remove_part_files, write_atomically, write_text, writing
from tagseg.errors import ConfigError

# Holds a folder, as a run with one data worker does: the worker has the parent's files open.
HOLDER = """
import os, sys, time
from pathlib import Path
from tagseg._files import hold_folder
with hold_folder(Path(sys.argv[1])):
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            time.sleep(0.01)
        time.sleep(0.5)
        os._exit(0)
    print(os.getpid(), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Process that holds the folder `run`."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def test_second_process_is_refused_with_the_holders_name(
    other_process: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    holder = f"process {other_process.pid} on {socket.gethostname()}"
    with pytest.raises(ConfigError, match=f"run is in use by {holder}; wait until it ends, or choose another folder"):
        hold_folder(tmp_path / "run").__enter__()


def test_lock_of_a_killed_process_is_taken_over_when_its_workers_have_ended(
    other_process: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    with hold_folder(tmp_path / "run"):
        assert str(os.getpid()) in (tmp_path / "run" / ".lock.holder").read_text()
    assert not (tmp_path / "run" / ".lock.holder").exists()


def test_folder_has_a_lock_for_each_file(tmp_path: Path) -> None:
    """As the shards of a prediction do."""
    with hold_folder(tmp_path, file="predictions-1-of-2.json"):
        with hold_folder(tmp_path, file="predictions-2-of-2.json"):
            pass
        with pytest.raises(ConfigError, match="predictions-1-of-2.json is in use by process"):
            hold_folder(tmp_path, file="predictions-1-of-2.json").__enter__()


def test_folder_is_removed_if_nothing_came_of_it(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new", "used"):
        with hold_folder(tmp_path / name):
            assert has_no_files(tmp_path / name)
            if name == "used":
                (tmp_path / name / "model.safetensors").touch()
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "used"}
    assert not has_no_files(tmp_path / "used")


def test_part_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / "masks").mkdir()
    names = ["model.safetensors.0123abcd.part", "masks/a.png.0123abcd.part", "notes.part", "report.html.0123abcd.part"]
    for name in names:
        (tmp_path / name).touch()
    remove_part_files(tmp_path, ["model.safetensors", "masks/a.png"])
    assert [(tmp_path / name).exists() for name in names] == [False, False, True, True]
    remove_part_files(tmp_path)
    assert [(tmp_path / name).exists() for name in names] == [False, False, True, False]


def test_errors_of_the_file_system_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = r"out: cannot be written \(Not a directory\); choose another place with out="
    with pytest.raises(ConfigError, match=message) as error, writing("out"):
        (tmp_path / "file" / "folder").mkdir()
    assert isinstance(error.value.__cause__, NotADirectoryError)
    with pytest.raises(KeyError), writing("out"):  # not of the file system: a bug keeps its traceback
        raise KeyError


def test_file_is_complete_or_as_it_was(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "Käse\n")

    def fail(part: Path) -> None:
        part.write_text("half")
        raise KeyError

    with pytest.raises(KeyError):
        write_atomically(tmp_path / "a.txt", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "Käse\n"
