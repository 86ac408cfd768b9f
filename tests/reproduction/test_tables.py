"""Our figures stand beside the paper's, each from its own file, and protocols are never mixed."""

import sys
from pathlib import Path

import pytest

from tagseg.predict.predictor import DEFAULT_FOLDER
from tagseg.reproduction.__main__ import main
from tagseg.reproduction.costs import costs_markdown
from tagseg.reproduction.document import filled
from tagseg.reproduction.epochs import epochs_markdown
from tagseg.reproduction.markdown import table_markdown
from tagseg.reproduction.measurements import MEASUREMENTS
from tagseg.reproduction.paper import RUNS, TABLES
from tagseg.reproduction.publish import publish
from tagseg.training.journal import Journal
from tagseg.training.recipe import recipe_names
from tests.reproduction.made import write_evaluation, write_training

ROOT = Path(__file__).parents[2]


def cells(markdown: str, label: str) -> list[str]:
    """The cells of a table's first row that begins with a label."""
    row = next(line for line in markdown.splitlines() if line.startswith(f"| {label} "))
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


def test_the_documents_are_what_the_script_makes() -> None:
    documents = [(ROOT / "docs" / "results.md").read_text(), (DEFAULT_FOLDER / "README.md").read_text()]
    for document in documents:
        assert filled(document, ROOT / "results") == document
    assert all(f"<!-- begin {name} -->" in "".join(documents) for name in [*TABLES, "costs", "epochs"])


def test_every_run_has_a_recipe_and_every_row_a_cell_for_each_heading() -> None:
    assert set(RUNS) <= set(recipe_names())
    assert len(RUNS) == 18
    for table in TABLES.values():
        assert all(len(row) == len(table.headings) for row in table.rows)
        assert all(figure.file in MEASUREMENTS for figure in table.figures)


def test_what_is_not_measured_is_a_dash(tmp_path: Path) -> None:
    assert cells(table_markdown(TABLES["table-1"], tmp_path), "no PAMR") == ["31.8", "-", "-", "-"]
    write_evaluation(tmp_path, "resnet50-no-pamr", "tta", 60)
    # 60 of 100 pixels right, 40 taken for another class: 60 / 140 is the IoU
    assert cells(table_markdown(TABLES["table-1"], tmp_path), "no PAMR") == ["31.8", "42.9", "-", "-"]
    assert cells(costs_markdown(tmp_path, RUNS), "vgg16") == ["-"] * 10


def test_each_table_has_its_protocol(tmp_path: Path) -> None:
    for name in ("tta", "tta-crf", "pseudo"):
        write_evaluation(tmp_path, "resnet50", name, {"tta": 60, "tta-crf": 70, "pseudo": 80}[name])
    first = table_markdown(TABLES["table-1"], tmp_path)
    assert "Protocol `predicted-tags`" in first
    assert cells(first, "the whole method") == ["59.7", "42.9", "62.7", "53.8"]
    second = table_markdown(TABLES["table-2"], tmp_path)
    assert "Protocol `true-tags`" in second
    assert cells(second, "the method") == ["64.7", "81.8", "90.0", "90.0", "63.4", "53.8"]
    assert cells(table_markdown(TABLES["supp-c"], tmp_path), "tvmonitor") == ["63.6", "42.9", "64.3", "53.8"]
    assert "measured on 1,149 val images" in " ".join(first.split())


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    write_evaluation(tmp_path, "resnet50", "tta", 60)
    (tmp_path / "resnet50" / "tta.json").rename(tmp_path / "resnet50" / "tta-crf.json")
    with pytest.raises(ValueError, match="tta-crf.json: is not what its name says .*CRF off.*remove it"):
        table_markdown(TABLES["table-1"], tmp_path)
    (tmp_path / "resnet50" / "tta-crf.json").rename(tmp_path / "resnet50" / "last.json")
    with pytest.raises(ValueError, match="last.json: is not what its name says .*model run.*remove it"):
        table_markdown(TABLES["checkpoint"], tmp_path)
    (tmp_path / "resnet50" / "tta-crf.json").write_text('{"model": {}}')
    with pytest.raises(ValueError, match="tta-crf.json: is not an evaluation of this version; remove it"):
        table_markdown(TABLES["table-1"], tmp_path)


def test_runs_measured_on_different_images_are_refused(tmp_path: Path) -> None:
    write_evaluation(tmp_path, "resnet50", "tta", 60)
    write_evaluation(tmp_path, "resnet50-no-gate", "tta", 60, images=1449)
    with pytest.raises(ValueError, match="some runs were measured on 1149 val images and others on 1449"):
        table_markdown(TABLES["table-1"], tmp_path)


def test_costs_come_from_the_journal(tmp_path: Path) -> None:
    write_training(tmp_path, "resnet50")
    write_evaluation(tmp_path, "resnet50", "tta", 60)
    # 200 images at 10 a second, twice 200 at 20: 40 seconds
    expected = ["2 of 2", "2", "2", "0.7", "15", "20", "3.5", "114.9", "-", "a device"]
    assert cells(costs_markdown(tmp_path, RUNS), "resnet50") == expected


def test_the_models_epoch_is_the_one_that_was_kept(tmp_path: Path) -> None:
    for keep, epoch in (("best", "1"), ("last", "2")):
        write_training(tmp_path / keep, "cam-resnet50", f"validation.checkpoint={keep}")
        assert cells(costs_markdown(tmp_path / keep, RUNS), "cam-resnet50")[1] == epoch


def test_epochs_come_from_the_journal(tmp_path: Path) -> None:
    write_training(tmp_path, "resnet50")
    write_training(tmp_path, "cam-resnet50")
    markdown = " ".join(epochs_markdown(tmp_path, RUNS).split())
    assert "| resnet50 | 1, 2 | 1.000, 1.500 | 30.0, 40.0 | 40.0, 50.0 |" in markdown
    assert "| vgg16 | - | - | - | - |" in markdown
    # The method's first epoch trains no masks, so its second has the lowest loss of those that may be kept.
    assert "Of 2 runs" in markdown
    assert "best masks in 2 under predicted tags and in 2 under true tags, and the lowest loss in 1." in markdown


def test_of_many_epochs_every_fifth_is_shown_and_all_count(tmp_path: Path) -> None:
    """The seventh epoch is the last and shown, and the sixth, which is not, has the best masks."""
    write_training(tmp_path, "resnet50")
    journal = Journal(tmp_path / "resnet50")  # a new one, in place of what was written
    for epoch in range(1, 8):
        masks = dict.fromkeys(("mIoU predicted-tags", "mIoU true-tags"), 60.0 if epoch == 6 else 50.0)
        journal.write("validation", 20 * epoch, epoch=epoch, loss=2.0, **masks)
    markdown = " ".join(epochs_markdown(tmp_path, RUNS).split())
    assert "| resnet50 | 5, 7 | 2.000, 2.000 | 50.0, 50.0 | 50.0, 50.0 |" in markdown
    assert "best masks in 0 under predicted tags and in 0 under true tags" in markdown


def test_publishing_keeps_numbers_and_no_folder_of_the_machine(tmp_path: Path) -> None:
    write_training(tmp_path / "runs", "resnet50")
    write_evaluation(tmp_path / "runs", "resnet50", "tta", 60)
    (tmp_path / "runs" / "resnet50" / "model.safetensors").write_bytes(b"large")
    assert publish(tmp_path / "runs", tmp_path / "results") == ["resnet50"]
    kept = {file.name: file.read_text() for file in (tmp_path / "results" / "resnet50").iterdir()}
    assert set(kept) == {"config.json", "metrics.jsonl", "tta.json"}
    assert '"train": "b.csv"' in kept["config.json"]
    for table in ("table-1", "supp-f"):
        published, own = (table_markdown(TABLES[table], tmp_path / name) for name in ("results", "runs"))
        assert published == own
    with pytest.raises(ValueError, match="nothing: holds no run of the paper's tables"):
        publish(tmp_path / "nothing", tmp_path / "results")


@pytest.mark.parametrize(
    ("text", "words"),
    [("no marks", "holds no results; name the folder"), ("<!-- begin table-9 -->\n<!-- end -->", "unknown table")],
)
def test_errors_of_the_script_are_one_line(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "document.md").write_text(text)
    results = tmp_path / "results"
    results.mkdir()
    if "begin" in text:
        write_evaluation(results, "resnet50", "tta", 60)
    monkeypatch.setattr(sys, "argv", ["reproduction", str(results), str(tmp_path / "document.md")])
    with pytest.raises(SystemExit, match=words) as stopped:
        main()
    assert "\n" not in str(stopped.value)
