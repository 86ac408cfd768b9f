"""Jobs on a Ray cluster whose workers, nodes and command are killed, and the commands of docs/guide/machines.md."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pyarrow import parquet

from tagseg._ray import run_on_ray
from tagseg.benchmarks.synthetic_images import photo_array
from tagseg.errors import ProcessLost
from tagseg.training.logging import read_metrics
from tests.guide.commands import commands, run_command
from tests.guide.conftest import reader_folder, trained_photos  # noqa: F401  fixtures
from tests.guide.test_machines import launch
from tests.test_ray import start_cluster

ROOT = Path(__file__).parents[2]
COUNT = 400  # 25 parts


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machines") / "photos"
    folder.mkdir()
    for number in range(COUNT):
        Image.fromarray(photo_array(120, 160, seed=number % 20)).save(folder / f"{number:03}.jpg")
    return folder


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    nodes = start_cluster()
    yield nodes
    nodes.shutdown()


def start(photos: Path, out: Path, address: str, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tagseg", "predict", str(photos), "-o", str(out), "--format", "parquet", *more]
    return subprocess.Popen(
        [*command, "--size", "256", "--ray", address],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_parts(out: Path, count: int, process: "subprocess.Popen[str]") -> None:
    while len(list(out.glob("*.parquet"))) < count:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


def finish(process: "subprocess.Popen[str]") -> str:
    output, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    assert output.splitlines() == [output.strip()], output  # one line: Ray's messages are elsewhere
    assert not any(word in errors for word in ("raylet", "Traceback", "WARNING", "INFO")), errors
    return errors


def check(out: Path) -> dict[str, bytes]:
    rows = [row for file in out.glob("*.parquet") for row in parquet.read_table(file).to_pylist()]
    assert Counter(row["name"] for row in rows) == Counter(f"{number:03}" for number in range(COUNT))
    assert not list(out.glob(".attempts*"))
    return {row["name"]: row["mask"]["bytes"] for row in rows}


def test_node_is_killed_and_masks_are_those_of_one_process(cluster: Any, photos: Path, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    process = start(photos, tmp_path / "ray", cluster.address)
    wait_for_parts(tmp_path / "ray", 3, process)
    cluster.remove_node(node, allow_graceful=False)
    print(finish(process))
    run = [sys.executable, "-m", "tagseg", "predict", str(photos), "-o", str(tmp_path / "plain"), "--size", "256"]
    subprocess.run([*run, "--format", "parquet"], env=environment(), check=True)
    assert check(tmp_path / "ray") == check(tmp_path / "plain")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_command_is_killed_and_repeated(cluster: Any, photos: Path, number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(photos, out, cluster.address)
    wait_for_parts(out, 2, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert errors.strip().splitlines()[-1].endswith("continue by the same command with --skip-existing"), errors
    kept = {path: path.stat().st_mtime_ns for path in out.glob("predictions-*.parquet")}
    finish(start(photos, out, cluster.address, "--skip-existing"))
    check(out)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_part_that_kills_every_worker_ends_the_job(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(ProcessLost, match="4 workers died at 1; often the memory is full"):
        list(run_on_ray(cluster.address, os._exit, [1], folder=tmp_path, resume="run it again"))
    assert not list(tmp_path.iterdir())


def test_commands_of_the_page_work(reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    for command in commands("machines", program="torchrun"):
        launch(command, reader_folder)
    assert read_metrics(reader_folder / "runs" / "torchrun")[0]["processes"] == 2
    for command in commands("machines"):
        run_command(command, monkeypatch)
    assert len(list((reader_folder / "parts").glob("*.parquet"))) == 3
    assert len(list((reader_folder / "pseudo" / "SegmentationClass").iterdir())) == 40
