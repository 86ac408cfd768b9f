"""Commands that are killed, or cannot write, end with the files of an uninterrupted one when they are repeated."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from tests.photos import write_photos
from tests.torture.conftest import TRIALS
from tests.torture.sabotage import Sabotage, run
from tests.training.small_run import SETTINGS

MOMENTS = min(20, 2 * TRIALS)  # of each command, from its first write to its last
COMMANDS = ["train", "pseudo-labels", "train-masks", "predict", "export", "export-masks"]
NOT_COMPARED = {".lock", ".lock.holder", "metrics.jsonl", "config.json"}


class Bench:
    """Commands of each kind on 40 photos, and the folders that they write uninterrupted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log.txt"
        (folder / "photos").mkdir()
        self.photos = write_photos(folder / "photos")
        self.moments: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        for command in COMMANDS:
            count = folder / "count.txt"
            ending = run(self.arguments(command, self.expected(command)), self.log, Sabotage(count=count))
            assert ending.code == 0, ending.output
            self.moments[command], self.seconds[command] = int(count.read_text()), ending.seconds

    def expected(self, command: str) -> Path:
        return self.folder / f"{command}-expected"

    def arguments(self, command: str, out: Path) -> list[str]:
        settings = [part for setting in (*SETTINGS, "training.epochs=2") for part in ("--set", setting)]
        model = ["-m", str(self.expected("train"))]
        table = [str(self.photos / "photos.csv"), "--images", str(self.photos / "images")]
        return {
            "train": ["train", *table, "-o", str(out), *settings, "--workers", "0", "--checkpoint-steps", "1"],
            "pseudo-labels": ["pseudo-labels", *table, "-o", str(out), *model],
            "train-masks": [
                *("train-masks", str(self.expected("pseudo-labels")), "-o", str(out), *settings),
                *("--workers", "0", "--checkpoint-steps", "1", "--set", "model.method=supervised"),
                *("--set", "training.classification_epochs=0"),
            ],
            "predict": ["predict", str(self.photos / "images"), "-o", str(out), *model, "--skip-existing"],
            "export": ["export", str(out / "model.onnx"), *model, "--overwrite"],
            "export-masks": ["export-masks", str(self.expected("pseudo-labels")), "-o", str(out), "--format", "coco"],
        }[command]

    def check_repeated(self, command: str, out: Path) -> None:
        """The same command resumes and ends with the files of an uninterrupted one."""
        assert_no_half_file(out)
        if command == "export-masks" and out.exists():  # its folder appears when it is complete, and is not replaced
            assert_same(out, self.expected(command))
            return
        ending = run(self.arguments(command, out), self.log)
        assert ending.code == 0, ending.output
        assert_same(out, self.expected(command))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def files_of(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


def read(path: Path) -> Any:
    """Content of a file, without what differs between equal runs; raises an error if it is damaged."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            metadata = {key: value for key, value in file.metadata().items() if key != "train_state"}
        return load_file(path), metadata
    if path.suffix == ".onnx":
        return onnx.load(path)
    if path.suffix in (".png", ".jpg"):
        return np.asarray(Image.open(path))
    return json.loads(path.read_text()) if path.suffix == ".json" else path.read_text()


def assert_no_half_file(out: Path) -> None:
    for name, path in (files_of(out) if out.exists() else {}).items():
        if not name.endswith(".part") and not name.startswith(".lock"):
            read(path)


def assert_same(out: Path, expected: Path) -> None:
    first, second = ({n: p for n, p in files_of(f).items() if not n.startswith(".lock")} for f in (out, expected))
    assert first.keys() == second.keys()
    for name in first.keys() - NOT_COMPARED:
        if name.endswith(".safetensors"):
            (tensors, notes), (expected_tensors, expected_notes) = read(first[name]), read(second[name])
            assert notes == expected_notes, name
            assert tensors.keys() == expected_tensors.keys()
            assert all(torch.equal(tensor, expected_tensors[key]) for key, tensor in tensors.items()), name
        else:
            assert first[name].read_bytes() == second[name].read_bytes(), name


@pytest.mark.parametrize("action", ["kill", "full"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_kind_of_moment(bench: Bench, command: str, action: str, tmp_path: Path) -> None:
    moments = bench.moments[command]
    for trial, moment in enumerate(np.unique(np.linspace(1, moments, min(moments, MOMENTS)).astype(int))):
        out = tmp_path / str(trial)
        ending = run(bench.arguments(command, out), bench.log, Sabotage(int(moment), action))
        if action == "kill":
            assert ending.code == -9
        else:
            ending.assert_one_line("cannot be written (No space left on device); free some space")
        bench.check_repeated(command, out)
        shutil.rmtree(out)


@pytest.mark.parametrize("command", COMMANDS)
def test_random_moments(bench: Bench, command: str, tmp_path: Path) -> None:
    """Up to three crashes of each run."""
    source = random.Random(0)
    for trial in range(TRIALS):
        out = tmp_path / str(trial)
        for _ in range(source.randint(1, 3)):
            run(bench.arguments(command, out), bench.log, kill_after=source.uniform(0.1, bench.seconds[command]))
        bench.check_repeated(command, out)
        shutil.rmtree(out)


@pytest.mark.parametrize("clock", ["stands", "jumps"])
@pytest.mark.parametrize("command", COMMANDS)
def test_clock_does_not_matter(bench: Bench, command: str, clock: str, tmp_path: Path) -> None:
    ending = run(bench.arguments(command, tmp_path / "out"), bench.log, Sabotage(clock=clock))
    assert ending.code == 0, ending.output
    assert_same(tmp_path / "out", bench.expected(command))


def test_image_that_is_deleted_during_an_epoch_is_named(bench: Bench, tmp_path: Path) -> None:
    images = sorted((bench.photos / "images").iterdir())
    held_out = (bench.expected("train") / "validation.txt").read_text().split()
    image = next(path for path in images[::2] if path.stem not in held_out)
    copy = shutil.copy(image, tmp_path / image.name)
    ending = run(
        bench.arguments("train", tmp_path / "out"), bench.log, Sabotage(bench.moments["train"] // 2, str(image))
    )
    if ending.code == 0:
        pytest.skip("the image was not needed any more")
    ending.assert_one_line(str(image))
    shutil.copy(copy, image)
    bench.check_repeated("train", tmp_path / "out")


@pytest.mark.parametrize("command", COMMANDS)
def test_folder_that_cannot_be_written_is_named(bench: Bench, command: str) -> None:
    out = Path("/proc/out")
    run(bench.arguments(command, out), bench.log).assert_one_line("/proc/out: cannot be written", "--out")


def test_disk_that_is_really_full(bench: Bench, tmp_path: Path) -> None:
    """A small file system in memory, from too little for a checkpoint to almost enough."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        for command in COMMANDS:
            needed = sum(path.stat().st_size for path in files_of(bench.expected(command)).values())
            for share in (0.1, 0.3, 0.6):
                size = max(4096, int(share * needed))
                subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
                run(bench.arguments(command, disk / command), bench.log).assert_one_line("--out")
            subprocess.run(["mount", "-o", "remount,size=256m", str(disk)], check=True)
            bench.check_repeated(command, disk / command)
            shutil.rmtree(disk / command)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
