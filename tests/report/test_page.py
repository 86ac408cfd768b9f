"""Reports of small but real runs: what a reader relies on."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tagseg.data import shapes
from tagseg.evaluation import Evaluation
from tagseg.report import write_page
from tagseg.report.run import read_run
from tagseg.report.stages import by_iteration, stages_of
from tagseg.training.pseudo import IGNORE
from tests.report.parsed import Page
from tests.report.runs import CLASSES, SECTIONS, SIZE, STAGES, TRUTH, VALIDATION


@pytest.fixture(scope="module")
def full(trained: Path, evaluation: Evaluation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reports") / "deep" / "full.html"
    return write_page(trained, out, images=VALIDATION, ground_truth=TRUTH, evaluations=[evaluation], count=4)


def test_has_every_section_in_order(full: Path) -> None:
    assert Page(full).sections == SECTIONS


def test_needs_nothing_else(full: Path) -> None:
    page = Page(full)
    links = [attributes[key] or "" for _, attributes in page.elements for key in ("src", "href") if key in attributes]
    assert links
    assert all(link.startswith(("data:image/", "#")) for link in links)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.elements}
    assert not re.search(r"https?:|url\(|@import", full.read_text())
    assert full.stat().st_size < 3_000_000


def test_links_within_the_page_lead_somewhere(full: Path, run: Path) -> None:
    for page in (Page(full), Page(write_page(run, images=None))):
        assert [(attributes["href"] or "").removeprefix("#") for attributes in page.all("a")] == page.sections


def test_shows_each_image_at_every_stage_and_two_by_iteration(full: Path) -> None:
    images = Page(full).images
    shown = ["val-00000", "val-00003", "val-00006", "val-00009"]
    expected = [(name, stage) for name in shown for stage in STAGES]
    steps = ["prediction", "1 iteration", *(f"{count} iterations" for count in (3, 5, 7, 10)), "ground truth"]
    expected += [(name, step) for name in ("val-00000", "val-00009") for step in steps]
    assert [tuple(alt.partition(":")[0].split(", ")) for alt in images] == expected
    assert all(len(alt.split(": ")) == 2 for alt in images if "input" not in alt)


def test_stages_are_those_of_training(trained: Path) -> None:
    found = read_run(trained)
    stages = stages_of(found, VALIDATION, 3)
    assert stages.refined is not None
    assert stages.pseudo is not None
    torch.testing.assert_close(by_iteration(found, stages, (1, 3, 10))[-1], stages.refined)  # the recipe's iterations
    tags = {int(k) + 1 for k in VALIDATION.labels[3].nonzero()[:, 0]}
    assert {int(value) for value in np.unique(stages.pseudo)} <= {IGNORE, 0} | tags
    assert stages.masks.sum(1).allclose(torch.ones(1))


def test_says_how_images_were_chosen_and_what_is_tagged(full: Path) -> None:
    text = Page(full).text
    assert "4 of 12 validation images, evenly spaced over their IDs" in text
    tags = [CLASSES[k] for k in VALIDATION.labels[0].nonzero()[:, 0].tolist()]
    assert re.search(r"val-00000 true " + re.escape(tags[0]), text)


def test_class_names_are_text_and_never_markup(full: Path) -> None:
    page = Page(full)
    assert "<b>disc" not in full.read_text()
    assert all(name in page.text for name in CLASSES)


def test_summary_names_the_run(full: Path) -> None:
    text = Page(full).text
    for words in (
        "test_resnet",
        "6 classes",
        "24 training images",
        "12 validation images",
        "2 epochs (epoch 2 kept)",
    ):
        assert words in text


def test_protocols_are_named_with_their_numbers(full: Path, evaluation: Evaluation) -> None:
    text = Page(full).text
    for protocol in ("predicted-tags", "true-tags"):
        assert f"Per class, {protocol}" in text
        assert f"Confusion, {protocol}" in text
        assert f"{protocol} {100 * evaluation.mean_iou(protocol):.1f} %" in text
    assert "Warning" not in text


def test_pixel_metrics_stand_apart(full: Path) -> None:
    text = Page(full).text
    assert text.index("mean average precision") < text.index("Pixel metrics") < text.index("Measured on masks")
    assert "never choose the model" in text
    assert "classification" not in text[text.index("Pixel metrics") : text.index("Numbers by epoch")]


def test_curves_mark_the_kept_epoch_and_the_first_phase(full: Path) -> None:
    page = Page(full)
    assert "kept: epoch 2" in page.text
    assert "The model is the network after the last epoch that was validated, epoch 2." in page.text
    assert len(page.with_class("phase")) == len(page.with_class("chosen")) == len(page.with_class("chart"))


def test_dataset_counts_the_tags(full: Path) -> None:
    text = Page(full).text
    for name, count in zip(CLASSES, VALIDATION.labels.sum(0).int().tolist(), strict=True):
        assert f"{name} {count} {100 * count / 12:.1f} %" in text


def test_configuration_is_there_in_full(full: Path) -> None:
    page = Page(full)
    assert "All settings of this run" in page.text
    for words in (
        "penalty_lambda 0.01",
        "dilations 1, 2, 4, 8, 12, 24",
        "data shapes",
        f"torch {torch.__version__}"[:10],
    ):
        assert words in page.text


def test_charts_and_regions_have_names(full: Path) -> None:
    for tag, attributes in Page(full).elements:
        if attributes.get("role") in ("img", "region"):
            assert attributes.get("aria-label"), tag


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run's folder"):
        write_page(tmp_path / "nothing", images=None)


def test_wrong_arguments_are_refused_in_one_line(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="count must be 1 or more"):
        write_page(trained, images=VALIDATION, count=0)
    with pytest.raises(ValueError, match="is a folder; name a file"):
        write_page(trained, tmp_path, images=None)
    with pytest.raises(ValueError, match="open them with classes="):
        write_page(trained, images=shapes(2, size=SIZE))
