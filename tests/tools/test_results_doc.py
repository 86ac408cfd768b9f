from pathlib import Path

import pytest

from tagseg.errors import TagsegError
from tagseg.models.serialization import DEFAULT_FOLDER
from tagseg.reproduction.paper import RUNS, TABLES
from tagseg.training.logging import MetricsLog
from tests.reproduction.fake_runs import write_evaluation, write_training
from tests.reproduction.markdown import cells
from tools.results_doc import costs_table, epochs_table, fill, write_document

ROOT = Path(__file__).parents[2]


def test_documents_have_the_committed_results() -> None:
    documents = [(ROOT / "docs" / "results.md").read_text(), (DEFAULT_FOLDER / "README.md").read_text()]
    for document in documents:
        assert fill(document, ROOT / "results") == document
    measured = [
        name
        for name, table in TABLES.items()
        if all((ROOT / "results" / run).is_dir() for result in table.results for run in result.runs)
    ]
    assert all(f"<!-- begin {name} -->" in "".join(documents) for name in [*measured, "costs", "epochs"])


def test_costs_come_from_the_log_and_the_evaluations(tmp_path: Path) -> None:
    assert cells(costs_table(tmp_path, RUNS), "vgg16") == ["-"] * 9
    write_training(tmp_path, "resnet50")
    write_evaluation(tmp_path, "resnet50", "tta", 60)
    # 200 images at 10 images/s and twice 200 at 20 images/s take 40 seconds.
    expected = ["2 of 2", "2", "0.7", "15", "20", "3.5", "114.9", "-", "a device"]
    assert cells(costs_table(tmp_path, RUNS), "resnet50") == expected


def test_epoch_of_the_model_follows_the_checkpoint_setting(tmp_path: Path) -> None:
    for checkpoint, epoch in (("best", "1"), ("last", "2")):
        write_training(tmp_path / checkpoint, "cam-resnet50", f"validation.checkpoint={checkpoint}")
        assert cells(costs_table(tmp_path / checkpoint, RUNS), "cam-resnet50")[1] == epoch


def test_epochs_come_from_the_log(tmp_path: Path) -> None:
    write_training(tmp_path, "resnet50")
    write_training(tmp_path, "cam-resnet50")
    markdown = epochs_table(tmp_path, RUNS)
    assert cells(markdown, "resnet50") == ["1, 2", "1.000, 1.500", "30.0, 40.0", "40.0, 50.0"]
    assert cells(markdown, "vgg16") == ["-"] * 4
    note = " ".join(markdown.split())
    # The first epoch of the method trains on labels alone, so its second epoch is the only candidate.
    assert "Of 2 runs" in note
    assert (
        "best mean IoU in 2 under predicted-tags and in 2 under true-tags, and the lowest validation loss in 1" in note
    )


def test_every_fifth_epoch_is_listed(tmp_path: Path) -> None:
    write_training(tmp_path, "resnet50")
    log = MetricsLog(tmp_path / "resnet50")  # replaces the log
    for epoch in range(1, 8):
        metrics = dict.fromkeys(("mIoU predicted-tags", "mIoU true-tags"), 60.0 if epoch == 6 else 50.0)
        log.write("validation", 20 * epoch, epoch=epoch, loss=2.0, **metrics)
    markdown = epochs_table(tmp_path, RUNS)
    assert cells(markdown, "resnet50") == ["5, 7", "2.000, 2.000", "50.0, 50.0", "50.0, 50.0"]
    assert "best mean IoU in 0 under predicted-tags and in 0 under true-tags" in " ".join(markdown.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [("no blocks", "holds no results; name the folder"), ("<!-- begin table-9 -->\n<!-- end -->", "unknown table")],
)
def test_wrong_input_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "document.md").write_text(text)
    results = tmp_path / "results"
    results.mkdir()
    if "begin" in text:
        write_evaluation(results, "resnet50", "tta", 60)
    with pytest.raises(TagsegError, match=message):
        write_document(results, tmp_path / "document.md")
    assert (tmp_path / "document.md").read_text() == text
