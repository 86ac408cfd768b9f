"""Several processes of one run: the same losses as one, each image once an epoch, and one line when one is lost."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tagseg.training.logging import read_metrics
from tagseg.training.sampler import ResumableBatchSampler
from tests.training.small_run import SETTINGS

ROOT = Path(__file__).parents[2]
STEPS = 52  # 4 an epoch
# Without what is random in each process (gate, dropout) and with frozen batch norms; the loss of every step is logged.
# In double precision: in single precision the order of sums flips pixels of pseudo labels, and losses change by 1e-4.
SCRIPT = """
import sys, torch
from pathlib import Path
from tagseg.training import loop
from tests.training.small_run import run, small_recipe
torch.set_num_threads(1)
loop.STEPS_BETWEEN_LOGS = 1
stop = int(sys.argv[2])
run(Path(sys.argv[1]), small_recipe(*sys.argv[3:]), deterministic=True, double=True, stop_after=stop or None)
"""
SAME_IN_EVERY_PROCESS = [
    "model.gate=deterministic",
    "training.classification_epochs=2",
    f"training.epochs={STEPS // 4}",
]


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "ACCELERATE_USE_CPU": "true", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def launch(processes: int, *arguments: str) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--standalone"),
        *arguments,
    ]


def train(folder: Path, processes: int, *, stop: int = 0, weighting: str = "reference") -> None:
    script = folder.parent / "script.py"
    script.write_text(SCRIPT)
    settings = [*SAME_IN_EVERY_PROCESS, f"pseudo_labels.weighting={weighting}"]
    command = launch(processes, str(script), str(folder), str(stop), *settings)
    result = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert (result.returncode == 0) == (not stop), result.stderr[-3000:]


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(folder) if line["kind"] == "train"]


@pytest.fixture(scope="module", params=["reference", "pixels"])
def one_process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[float]]:
    """Weighting of the pixels in the loss, and the losses of a run by one process."""
    folder = tmp_path_factory.mktemp("one") / "run"
    train(folder, 1, weighting=request.param)
    assert len(losses(folder)) == STEPS
    return request.param, losses(folder)


@pytest.mark.parametrize("processes", [(2,), (4,), (4, 2, 1)])
def test_losses_are_those_of_one_process(
    one_process: tuple[str, list[float]], processes: tuple[int, ...], tmp_path: Path
) -> None:
    """Also of a run that is resumed by other numbers of processes."""
    weighting, expected = one_process
    for number, stop in zip(processes, (*(18, 35)[: len(processes) - 1], 0), strict=True):
        train(tmp_path / "run", number, stop=stop, weighting=weighting)
    differences = [abs(a - b) for a, b in zip(losses(tmp_path / "run"), expected, strict=True)]
    print(f"{weighting}, processes {processes}: largest difference {max(differences):.1e} in {len(differences)} steps")
    assert max(differences) < 1e-5


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("start", [0, 7])
def test_every_image_is_used_once_an_epoch(processes: int, accumulate: int, start: int) -> None:
    used: Counter[tuple[int, int]] = Counter()
    for process in range(processes):
        sampler = ResumableBatchSampler(
            96, 8, accumulate=accumulate, epochs=3, processes=processes, process=process, seed=3
        )
        sampler.start = start
        used.update(image for batch in sampler for image in batch)
    assert set(used.values()) == {1}
    assert len(used) == 3 * 96 - start * 8
    assert all((epoch, image) in used for epoch in (1, 2) for image in range(96))


@pytest.mark.parametrize("victim", [0, 1])
def test_others_end_in_one_line_when_a_process_is_killed(victim: int, tmp_path: Path) -> None:
    """Without a launcher that would end them: as processes on other machines."""
    settings = [part for setting in (*SETTINGS, "training.epochs=500") for part in ("--set", setting)]
    out = tmp_path / "run"
    command = [sys.executable, "-m", "tagseg", "train", "shapes:24", "-o", str(out), *settings, "--workers", "0"]
    port = str(20000 + os.getpid() % 20000 + victim)
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            command,
            env={**environment(), **rendezvous, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    deadline = time.monotonic() + 180
    while not (out / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    processes[victim].send_signal(signal.SIGKILL)
    start = time.monotonic()
    survivor = processes[1 - victim]
    _, output = survivor.communicate(timeout=30)
    processes[victim].communicate()
    print(f"the other process ended after {time.monotonic() - start:.1f} s: {output.strip().splitlines()[-1]}")
    assert survivor.returncode not in (0, None)
    assert "Traceback" not in output, output
    (line,) = [line for line in output.splitlines() if line.startswith("tagseg: ")]
    assert "another process of this run has ended" in line
    assert (out / "checkpoint.safetensors").exists()


def test_two_nodes(tmp_path: Path) -> None:
    """Two network namespaces with an address each, and a shared file system."""
    made = [
        subprocess.run(["ip", *command.split()], capture_output=True).returncode if os.geteuid() == 0 else 1
        for command in (
            "netns add tagseg-a",
            "netns add tagseg-b",
            "link add tagseg-a0 netns tagseg-a type veth peer name tagseg-b0 netns tagseg-b",
        )
    ]
    try:
        if any(made):
            pytest.skip("network namespaces need root and iproute2, and a kernel that lets them be made")
        for name, address in (("a", "10.77.0.1"), ("b", "10.77.0.2")):
            for command in (
                f"addr add {address}/24 dev tagseg-{name}0",
                f"link set tagseg-{name}0 up",
                "link set lo up",
            ):
                subprocess.run(["ip", "-n", f"tagseg-{name}", *command.split()], check=True)
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        nodes = [
            subprocess.Popen(
                [
                    *("ip", "netns", "exec", f"tagseg-{name}", sys.executable, "-m", "torch.distributed.run"),
                    *("--nnodes=2", "--nproc_per_node=1", f"--node_rank={rank}", "--master_addr=10.77.0.1"),
                    *("--master_port=29555", "-m", "tagseg", "train", "shapes:24", "-o", str(tmp_path / "run")),
                    *settings,
                    *("--workers", "0"),
                ],
                env={**environment(), "GLOO_SOCKET_IFNAME": f"tagseg-{name}0"},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, name in enumerate("ab")
        ]
        outputs = [node.communicate(timeout=300)[1] for node in nodes]
        assert [node.returncode for node in nodes] == [0, 0], outputs
        assert read_metrics(tmp_path / "run")[0]["processes"] == 2
    finally:
        for name in "ab":
            subprocess.run(["ip", "netns", "del", f"tagseg-{name}"], capture_output=True)
