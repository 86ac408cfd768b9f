"""Tab Try in a real browser, used as a person does."""

import base64
import io
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect
from pycocotools.coco import COCO

import tagseg
from tagseg.app.context import Context

pytestmark = pytest.mark.slow
PHOTOS = Path(tagseg.__file__).parent / "photos"
SCREENSHOTS = {("light", 1100): "app-try", ("dark", 390): "app-try-phone"}  # of docs/guide/app.md


def status(page: Page) -> Locator:
    return page.locator("tagseg-try").get_by_role("status")


def take_sample(page: Page, name: str = "chelsea.jpg") -> None:
    page.get_by_role("button", name=f"Sample {name}").click()
    expect(status(page)).to_contain_text(f"{name}: ", timeout=60_000)


def pixels(page: Page, name: str) -> NDArray[np.uint8]:
    """What the canvas of this name shows, [H, W, 3]."""
    canvas = page.get_by_role("img", name=re.compile(name))
    address = canvas.evaluate("canvas => canvas.toDataURL()")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB"))


def test_a_sample_gets_masks_that_can_be_hidden_and_faded(page: Page, context: Context) -> None:
    take_sample(page)
    expect(status(page)).to_have_text("chelsea.jpg: cat 99 %")
    expected = context.queue.run(lambda: context.model.predict(PHOTOS / "chelsea.jpg"))
    mask = pixels(page, "^Mask: cat")
    assert mask.shape == (*expected.mask.shape, 3)
    np.testing.assert_array_equal(mask.any(2), expected.mask > 0)
    overlay = expected.overlay()
    assert np.abs(pixels(page, "^Overlay").astype(int) - np.asarray(overlay)).mean() < 2

    cat = page.get_by_role("button", name=re.compile("^cat"))
    expect(cat).to_have_attribute("aria-pressed", "true")
    cat.click()
    expect(cat).to_have_attribute("aria-pressed", "false")
    assert not pixels(page, "^Mask").any()
    cat.press("Enter")
    assert pixels(page, "^Mask").any()

    page.get_by_label("Opacity").fill("0")
    image, faded = pixels(page, "^Image"), pixels(page, "^Overlay")
    inside = expected.mask == 8
    assert np.abs(image.astype(int) - faded)[inside].mean() < 20
    assert np.abs(image.astype(int) - np.asarray(overlay))[inside].mean() > 40


def test_settings_and_known_tags_change_the_mask_and_list_their_times(page: Page) -> None:
    take_sample(page)
    page.get_by_label("Longest side for the network").select_option("256")
    rows = page.get_by_role("table", name="Time of each setting").get_by_role("row")
    expect(rows).to_have_count(3, timeout=60_000)
    page.get_by_label("Multi-scale and flip (TTA)").check()
    expect(rows).to_have_count(4, timeout=60_000)
    page.get_by_label("Dense CRF").check()
    expect(rows).to_have_count(5, timeout=60_000)
    expect(rows.nth(4)).to_have_text(re.compile(r"^TTA, CRF, size 256\s*cat\s*\d+\.\d\d$"))
    expect(rows.nth(4)).to_have_attribute("aria-current", "true")
    page.get_by_label("Dense CRF").uncheck()
    expect(rows.nth(3)).to_have_attribute("aria-current", "true")  # without another request
    expect(rows).to_have_count(5)

    page.get_by_label("Single scale").check()
    page.get_by_label("Known").check()
    expect(page.get_by_label("cat", exact=True)).to_be_checked()
    page.get_by_label("Find a tag").fill("do")
    expect(page.get_by_label("cat", exact=True)).to_be_hidden()
    page.get_by_label("dog").check()
    page.get_by_label("Find a tag").fill("")
    page.get_by_label("cat", exact=True).uncheck()
    expect(status(page)).to_have_text(re.compile("^chelsea.jpg: dog"), timeout=60_000)
    page.get_by_label("Predicted").check()
    expect(status(page)).to_have_text("chelsea.jpg: cat 99 %")


def test_swipe_by_keyboard(page: Page) -> None:
    take_sample(page)
    page.get_by_label("Swipe").check()
    expect(page.get_by_role("img", name=re.compile("^Image"))).to_have_count(1)
    border = page.get_by_label("Border between left and right")
    border.focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    expect(border).to_have_value("60")
    expect(page.get_by_role("img", name=re.compile("^Overlay"))).to_have_css("clip-path", "inset(0px 0px 0px 60%)")
    page.get_by_role("combobox", name="Right").select_option("Mask")
    expect(page.get_by_role("img", name=re.compile("^Mask"))).to_be_visible()


def test_downloads(page: Page, context: Context, tmp_path: Path) -> None:
    take_sample(page)
    expected = context.queue.run(lambda: context.model.predict(PHOTOS / "chelsea.jpg"))

    def download(name: str) -> Path:
        with page.expect_download() as event:
            page.get_by_role("link", name=name).click()
        path = tmp_path / event.value.suggested_filename
        event.value.save_as(path)
        return path

    mask = download("Mask (PNG)")
    assert mask.name == "chelsea_mask.png"
    np.testing.assert_array_equal(np.asarray(Image.open(mask)), expected.mask)
    assert json.loads(download("JSON").read_text())["classes"][0]["name"] == "cat"
    coco = COCO(download("COCO"))
    np.testing.assert_array_equal(coco.annToMask(coco.loadAnns(coco.getAnnIds())[0]), expected.mask == 8)


def test_dropped_files(page: Page, tmp_path: Path) -> None:
    """Also a TIFF, which browsers do not show."""
    Image.open(PHOTOS / "chelsea.jpg").save(tmp_path / "scan.tif")
    chooser = page.locator("input[type=file]")
    chooser.set_input_files(tmp_path / "scan.tif")
    expect(status(page)).to_have_text("scan.tif: cat 99 %", timeout=60_000)
    assert pixels(page, "^Image").std() > 30


def test_what_is_no_image_gets_one_line(browser: Browser, url: str, tmp_path: Path) -> None:
    page = browser.new_page()
    page.goto(url)
    (tmp_path / "notes.txt").write_text("no image")
    page.locator("input[type=file]").set_input_files(tmp_path / "notes.txt")
    error = page.get_by_role("alert").filter(has_text="notes.txt")
    expect(error).to_have_text(
        "notes.txt: is not an image that can be read (8 bytes); convert it to JPEG or PNG, or remove it"
    )
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(40 * 2**20)
    page.locator("input[type=file]").set_input_files(tmp_path / "huge.png")
    expect(page.get_by_role("alert").filter(has_text="huge.png")).to_have_text("huge.png has 40 MiB, more than 32.")
    take_sample(page)
    expect(error).to_be_hidden()
    page.close()


def test_the_page_says_how_many_requests_are_before_its_own(page: Page, context: Context) -> None:
    is_over = threading.Event()
    try:
        for _ in range(3):
            context.queue.submit(is_over.wait)
        page.get_by_role("button", name="Sample chelsea.jpg").click()
        expect(status(page)).to_have_text("Waiting: 3 requests are before this one")
    finally:
        is_over.set()
    expect(status(page)).to_have_text("chelsea.jpg: cat 99 %", timeout=60_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 390])
def test_accessible_and_no_wider_than_the_window(
    browser: Browser, url: str, axe: str, scheme: str, width: int, record_screenshot: Callable[[Page, str], None]
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url)
    if width < 700:
        page.get_by_text("Settings").click()
    take_sample(page)
    page.get_by_label("Known").check()
    expect(page.get_by_role("table", name="Time of each setting")).to_contain_text("tags: cat", timeout=60_000)
    if (scheme, width) in SCREENSHOTS:
        record_screenshot(page, SCREENSHOTS[scheme, width])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(axe)
    violations = page.evaluate("axe.run().then(result => result.violations)")
    serious = [
        f"{violation['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
    assert not serious, "\n".join(serious)
    context.close()
