"""Fixtures of the report's tests, which share one trained run."""

import shutil
from pathlib import Path

import pytest

from tagseg.evaluation import Evaluation, evaluate
from tagseg.predict import load
from tagseg.report import write_page
from tests.report.small_runs import IMAGES, MASKS, TRAIN_IMAGES, train


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "method")


@pytest.fixture(scope="session")
def evaluation(trained: Path) -> Evaluation:
    return evaluate(load(trained), IMAGES, MASKS, progress=False)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run, which a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="session")
def full_page(trained: Path, evaluation: Evaluation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    run = Path(shutil.copytree(trained, folder / trained.name))
    evaluation.save(run)
    out = folder / "deep" / "full.html"
    return write_page(run, out, images=IMAGES, masks=MASKS, train_images=TRAIN_IMAGES, count=4)
