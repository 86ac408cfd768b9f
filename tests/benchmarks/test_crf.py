import subprocess
from functools import partial
from importlib.util import find_spec

import pytest
import torch

from tagseg._device import usable_cores
from tagseg.benchmarks import crf, timing
from tagseg.refine.crf import dense_crf

CPU = torch.device("cpu")
TAGSEG_ROWS = ["tagseg, 21 classes present", "tagseg, 3 of 21 classes present"]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure small images once."""
    monkeypatch.setattr(timing, "_SECONDS_PER_ROUND", 0)
    monkeypatch.setattr(crf, "_HEIGHT", 24)
    monkeypatch.setattr(crf, "_WIDTH", 32)
    monkeypatch.setattr(crf, "_job", partial(crf._job, height=24, width=32))


def test_scene_has_probabilities_of_21_classes() -> None:
    image, probs = crf.scene(40, 50, 3)
    assert (image.dtype, image.shape, probs.shape) == (torch.uint8, (3, 40, 50), (21, 40, 50))
    assert torch.allclose(probs.sum(0), torch.ones(40, 50))
    assert (probs.amax((1, 2)) > 0).tolist() == [True] * 3 + [False] * 18
    assert all(torch.equal(*pair) for pair in zip(crf.scene(40, 50, 3), (image, probs), strict=True))
    assert not torch.equal(crf.scene(40, 50, 3, seed=1)[1], probs)


def test_job_refines_a_batch_of_scenes() -> None:
    refined = crf._job(device=CPU, present=3, height=24, width=32, batch_size=2, iterations=3)()
    for seed in range(2):
        assert torch.allclose(refined[seed], dense_crf(*crf.scene(24, 32, 3, seed=seed), iterations=3), atol=1e-5)


@pytest.mark.usefixtures("_small")
@pytest.mark.skipif(not find_spec("pydensecrf"), reason="pydensecrf2 is an optional extra")
def test_table_starts_with_the_authors_code() -> None:
    table = crf._compare(CPU)
    assert table.title == "dense CRF, 24x32, 10 iterations"
    assert [row.name for row in table.rows] == ["pydensecrf2, 21 classes", *TAGSEG_ROWS]


@pytest.mark.usefixtures("_small")
def test_table_without_the_authors_code_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crf, "find_spec", lambda _: None)
    table = crf._compare(CPU)
    assert [row.name for row in table.rows] == TAGSEG_ROWS
    assert "pip install tagseg[bench]" in table.note


@pytest.mark.usefixtures("_small")
@pytest.mark.skipif(usable_cores() < 2, reason="needs two cores")
def test_busy_core_is_compared_with_one_thread_fewer() -> None:
    threads = torch.get_num_threads()
    table = crf._compare_busy_core()
    assert [row.name for row in table.rows] == [
        f"a thread for each of {usable_cores()} cores",
        "one thread fewer",
        "a thread for each core, one core busy",
    ]
    assert all(len(row.rounds) == 5 and row.seconds > 0 for row in table.rows)
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("cores", "num_tables"), [(1, 1), (2, 2)])
def test_busy_core_needs_a_second_core(cores: int, num_tables: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crf, "usable_cores", lambda: cores)
    assert len(list(crf._tables(CPU))) == num_tables


def test_busy_process_ends_on_errors_too() -> None:
    processes: list[subprocess.Popen[bytes]] = []

    def fail() -> None:
        with crf._busy_core() as process:
            processes.append(process)
            assert process.poll() is None
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        fail()
    assert processes[0].returncode == 0
