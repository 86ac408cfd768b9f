"""Tables with our results beside the paper's, with one protocol each."""

from pathlib import Path
from statistics import fmean, stdev

import pytest

from tagseg.errors import DataError
from tagseg.reproduction.paper import TABLES
from tagseg.reproduction.tables import mean_and_std, paper_table
from tests.reproduction.fake_runs import write_evaluation
from tests.reproduction.markdown import cells

SEEDS = ("resnet50", "resnet50-seed-1", "resnet50-seed-2", "resnet50-seed-3")


def test_missing_result_is_a_dash(tmp_path: Path) -> None:
    assert cells(paper_table(TABLES["table-1"], tmp_path), "no PAMR") == ["31.8", "-", "-", "-"]
    write_evaluation(tmp_path, "resnet50-no-pamr", "tta", 60)
    # 60 of 100 pixels are correct and 40 are of another class, so the IoU is 60 / 140.
    assert cells(paper_table(TABLES["table-1"], tmp_path), "no PAMR") == ["31.8", "42.9", "-", "-"]


def test_each_table_has_its_protocol(tmp_path: Path) -> None:
    for name, correct in (("tta", 60), ("tta-crf", 70), ("pseudo", 80)):
        for run in SEEDS:
            write_evaluation(tmp_path, run, name, correct)
    table_1 = paper_table(TABLES["table-1"], tmp_path)
    assert "Protocol `predicted-tags`" in table_1
    assert cells(table_1, "full method") == ["59.7", "42.9 ± 0.0", "62.7", "53.8 ± 0.0"]
    table_2 = paper_table(TABLES["table-2"], tmp_path)
    assert "Protocol `true-tags`" in table_2
    assert cells(table_2, "the method") == ["64.7", "81.8", "90.0", "90.0", "63.4", "53.8"]
    assert cells(paper_table(TABLES["supp-c"], tmp_path), "tvmonitor") == ["63.6", "42.9 ± 0.0", "64.3", "53.8 ± 0.0"]
    assert "Our runs: 1,149 val images." in " ".join(table_1.split())


def test_several_seeds_give_mean_and_std(tmp_path: Path) -> None:
    ious = [100 * correct / (200 - correct) for correct in (50, 60, 65, 70)]
    for run, correct in zip(SEEDS, (50, 60, 65, 70), strict=True):
        write_evaluation(tmp_path, run, "tta", correct)
    write_evaluation(tmp_path, "resnet50-seed-2", "tta-crf", 60)
    row = cells(paper_table(TABLES["table-1"], tmp_path), "full method")
    assert row == ["59.7", f"{fmean(ious):.1f} ± {stdev(ious):.1f}", "62.7", "42.9 (1 seed)"]
    assert mean_and_std([1.0, 2.0, 3.0], seeds=4) == "2.0 ± 1.0 (3 seeds)"


def test_runs_evaluated_on_different_images_are_refused(tmp_path: Path) -> None:
    write_evaluation(tmp_path, "resnet50", "tta", 60)
    write_evaluation(tmp_path, "resnet50-no-gate", "tta", 60, images=1449)
    with pytest.raises(DataError, match="some runs were evaluated on 1149 val images and others on 1449"):
        paper_table(TABLES["table-1"], tmp_path)
