"""The tabs of a run in a real browser, each used as a person does."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tagseg.app.marks import read_marks
from tests.app.conftest import open_page

pytestmark = pytest.mark.slow
LONG = 120_000  # milliseconds for what the model or a command computes
Record = Callable[[Page, str], None]


def open_tab(page: Page, name: str) -> Locator:
    """Open a tab and return what it shows."""
    expect(page.get_by_role("tab", name="Try", exact=True)).to_be_visible(timeout=LONG)
    tab = page.get_by_role("tab", name=name, exact=True)
    if not tab.is_visible():  # in a narrow window it is in a menu
        page.locator(".overflow-menu > button").click()
        tab = page.locator(".overflow-dropdown button").filter(has_text=name)
    tab.click()
    panel = page.get_by_role("tabpanel").filter(visible=True)
    expect(panel).to_have_count(1)
    return panel


def rank(page: Page) -> Locator:
    """Open Browse and let the model run on all images."""
    panel = open_tab(page, "Browse")
    panel.get_by_role("button", name=re.compile("^Run the model on")).click()
    expect(panel.get_by_text("at a single scale")).to_be_visible(timeout=LONG)
    return panel


def test_browse(run_page: Page, browser: Browser, run_url: str, run: Path, tmp_path: Path) -> None:
    panel = rank(run_page)
    cards = panel.locator(".card")
    names = (run / "validation.txt").read_text().split()
    expect(cards).to_have_count(len(names))
    uncertainties = [int(value) for value in re.findall(r"uncertainty (\d+)", " ".join(cards.all_inner_texts()))]
    assert uncertainties == sorted(uncertainties, reverse=True)

    first = cards.first.locator("strong").inner_text()
    cards.first.focus()
    run_page.keyboard.press("Enter")
    expect(panel.get_by_role("heading", name=first)).to_be_visible(timeout=LONG)
    expect(panel.get_by_role("img", name=re.compile("^ground truth"))).to_be_visible()
    panel.get_by_role("radio", name="Bad").check()
    panel.get_by_label("Comment").fill('the "ring" is a disc')
    panel.get_by_role("button", name="Save, next image").click()
    second = cards.nth(1).locator("strong").inner_text()
    expect(panel.get_by_role("heading", name=second)).to_be_visible(timeout=LONG)
    expect(panel.get_by_label("Comment")).to_have_value("")
    assert read_marks(run) == {first: {"verdict": "bad", "comment": 'the "ring" is a disc'}}
    expect(cards.first).to_contain_text("bad")

    with run_page.expect_download() as event:
        panel.get_by_role("link", name="List of marks (CSV)").click()
    event.value.save_as(tmp_path / "marks.csv")
    with (tmp_path / "marks.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["image"], row["mark"]) == (first, "bad")
    with run_page.expect_download() as event:
        panel.get_by_role("link", name="Tasks of Label Studio (JSON)").click()
    event.value.save_as(tmp_path / "tasks.json")
    assert json.loads((tmp_path / "tasks.json").read_text())[0]["data"]["id"] == first

    panel.get_by_label("Mark", exact=True).first.click()
    run_page.get_by_role("option", name="Bad").click()
    expect(cards).to_have_count(1)

    with open_page(browser, run_url) as another:  # marks and results are the server's
        expect(open_tab(another, "Browse").locator(".card").first).to_contain_text("bad")


def test_look_inside(run_page: Page) -> None:
    panel = open_tab(run_page, "Look inside")
    panel.get_by_role("button", name="Next image").click()
    slider = panel.get_by_role("slider", name="PAMR iterations")
    expect(slider).to_have_value("10", timeout=LONG)
    refined = panel.get_by_role("img", name=re.compile("iteration|before PAMR"))
    expect(refined).to_have_attribute("alt", re.compile("^after 10 iterations"))
    slider.focus()
    for _ in range(10):
        run_page.keyboard.press("ArrowLeft")
    expect(refined).to_have_attribute("alt", re.compile("^before PAMR"))
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^before PAMR"))
    for name in ("prediction", "pseudo label", "ground truth"):
        expect(panel.get_by_role("img", name=re.compile(f"^{name}"))).to_be_visible()
    rows = panel.get_by_role("table", name="Class scores").get_by_role("row")
    expect(rows).to_have_count(7)
    score, pooled, size = (float(text) for text in rows.nth(1).get_by_role("cell").all_inner_texts()[2:5])
    assert score == pytest.approx(pooled + size, abs=0.011)


def test_compare(run_page: Page) -> None:
    panel = open_tab(run_page, "Compare")
    panel.get_by_label("CRF for B").check()
    panel.get_by_role("button", name="Compare").click()
    table = panel.get_by_role("table", name="Settings and results")
    expect(table).to_contain_text("TTA, CRF", timeout=LONG)
    expect(table.get_by_role("row")).to_have_count(3)
    expect(panel.get_by_role("status")).to_have_text(re.compile(r"^The masks differ in [\d.]+ % of the pixels.$"))
    assert all("%" in row for row in table.get_by_role("row").all_inner_texts()[1:])  # the mIoU
    panel.get_by_label("Threshold for A").fill("high")
    panel.get_by_role("button", name="Compare").click()
    expect(run_page.get_by_text("threshold: 'high' is not a number")).to_be_visible(timeout=LONG)


def test_train(run_page: Page, browser: Browser, run_url: str, tmp_path: Path) -> None:
    out = tmp_path / "new"
    panel = open_tab(run_page, "Train")
    command = fill_in(panel, out)
    panel.get_by_role("button", name="Check the data").click()
    expect(panel.get_by_role("heading", name="shapes:60: fit with warnings")).to_be_visible(timeout=LONG)
    expect(panel.get_by_role("listitem").filter(has_text="warning").first).to_be_visible()

    panel.get_by_role("button", name="Start or resume").click()
    expect(panel.get_by_role("heading", name=f"Training {out}")).to_be_visible(timeout=LONG)
    expect(panel.get_by_role("region", name="Output of the command")).to_contain_text(f"$ {command}")
    expect(panel.get_by_text("Validation images by the last checkpoint")).to_be_visible(timeout=LONG)
    expect(panel.get_by_role("img", name=re.compile("^Training loss"))).to_be_visible(timeout=LONG)
    panel.get_by_role("button", name="Stop at a checkpoint").click()
    expect(panel.get_by_role("heading", name=f"Stopped: {out}")).to_be_visible(timeout=LONG)

    with open_page(browser, run_url) as another:
        panel = open_tab(another, "Train")
        expect(panel.get_by_role("heading", name=f"Stopped: {out}")).to_be_visible(timeout=LONG)
        fill_in(panel, out)
        panel.get_by_role("button", name="Start or resume").click()
        expect(panel.get_by_text(re.compile(r"Resuming from step \d+"))).to_be_visible(timeout=LONG)
        panel.get_by_role("button", name="Stop at a checkpoint").click()
        expect(panel.get_by_role("heading", name=f"Stopped: {out}")).to_be_visible(timeout=LONG)


def fill_in(panel: Locator, out: Path) -> str:
    """Fill in the form of the tab Train, and return the command that it shows."""
    panel.get_by_label("Table or folder").fill("shapes:60")
    panel.get_by_label("Folder of the run").fill(str(out))
    panel.get_by_role("combobox", name="Recipe").fill("shapes")
    panel.get_by_role("combobox", name="Recipe").press("Enter")
    changes = "training.epochs=400 model.width=16 transforms.crop=64 training.batch_size=8"
    panel.get_by_label("Settings to change").fill(changes)
    settings = " ".join(f"--set {change}" for change in changes.split())
    command = f"tagseg train shapes:60 --out {out} --recipe shapes {settings}"
    expect(panel.get_by_text(command).first).to_be_visible()
    return command


def test_photos_stand_in_for_a_run(page: Page, record_screenshot: Record) -> None:
    panel = open_tab(page, "Browse")
    expect(panel.get_by_text("tagseg app RUN")).to_be_visible()
    panel = open_tab(page, "Look inside")
    panel.get_by_label("Image").click()
    page.get_by_role("option", name="chelsea.jpg").click()
    expect(panel.get_by_role("img", name="pseudo label: cat")).to_be_visible(timeout=LONG)
    record_screenshot(page, "app-inside")
    panel = open_tab(page, "Compare")
    panel.get_by_role("button", name="Compare").click()
    expect(panel.get_by_role("status")).to_contain_text("The masks differ", timeout=LONG)
    record_screenshot(page, "app-compare")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_accessible_and_no_wider_than_the_window(
    browser: Browser, run_url: str, axe: str, width: int, scheme: str
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(run_url)
    rank(page).locator(".card").first.click()
    expect(page.locator(".tagseg dl")).to_be_visible(timeout=LONG)
    problems = _violations(page, axe, width)
    panel = open_tab(page, "Look inside")
    panel.get_by_role("button", name="Next image").click()
    expect(panel.get_by_role("slider")).to_be_visible(timeout=LONG)
    problems += _violations(page, axe, width)
    panel = open_tab(page, "Compare")
    panel.get_by_role("button", name="Compare").click()
    expect(panel.get_by_role("status")).to_contain_text("The masks differ", timeout=LONG)
    problems += _violations(page, axe, width)
    open_tab(page, "Train")
    problems += _violations(page, axe, width)
    context.close()
    assert not problems, "\n".join(problems)


def _violations(page: Page, axe: str, width: int) -> list[str]:
    """Serious violations of accessibility, and a page that is too wide."""
    transitions = "document.getAnimations().filter(animation => animation instanceof CSSTransition)"
    page.evaluate(f"Promise.allSettled({transitions}.map(transition => transition.finished))")  # fading texts
    page.evaluate(axe)
    problems = [
        f"{violation['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for violation in page.evaluate("axe.run().then(result => result.violations)")
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
    actual = page.evaluate("document.documentElement.scrollWidth")
    return [*problems, f"the page is {actual} pixels wide"] if actual > width else problems
