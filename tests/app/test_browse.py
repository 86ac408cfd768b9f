"""The gallery of a run, its filters, and its marks."""

import base64
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tagseg.app.browse import ALL_CLASSES, Browser, Filter, _next, open_browser
from tagseg.app.context import Context
from tagseg.app.images import ShownImages, open_images
from tagseg.app.marks import set_mark
from tagseg.app.ranking import NAME, Ranking
from tagseg.data import ImageDataset
from tagseg.errors import TagsegError
from tests.app.runs import shown_shapes

EVERYTHING = Filter(NAME, ALL_CLASSES, "All")


@pytest.fixture(scope="module")
def ranked(run_context: Context) -> Browser:
    browser = open_browser(run_context)
    browser.ranking.start()
    browser.ranking.wait()
    return browser


@pytest.fixture
def browser(ranked: Browser, tmp_path: Path) -> Browser:
    """The gallery with a folder for marks of its own."""
    return replace(ranked, run=tmp_path)


def ids(text: str) -> list[str]:
    """Names of the cards of a gallery."""
    return re.findall(r"<strong>(.+?)</strong>", text)


def test_the_gallery_shows_every_image_with_what_it_is_sorted_by(browser: Browser) -> None:
    text = browser.gallery(EVERYTHING, 0)
    assert ids(text) == sorted(browser.images.data.image_ids)
    assert len(re.findall(r"uncertainty \d+ %<.*\s.*>IoU \d+ %<", text)) == len(browser.images.data)
    assert text.count('src="data:image/jpeg;base64,') == len(browser.images.data)


def test_marks_filter_the_gallery(browser: Browser) -> None:
    first, second, third = ids(browser.gallery(EVERYTHING, 0))[:3]
    set_mark(browser.run, second, {"verdict": "bad", "comment": ""})
    assert ids(browser.gallery(EVERYTHING._replace(mark="Bad"), 0)) == [second]
    unmarked = EVERYTHING._replace(mark="Without a mark")
    assert ids(browser.gallery(unmarked, 0))[:2] == [first, third]
    assert "No image passes this filter" in browser.gallery(EVERYTHING._replace(mark="Good"), 0)
    # The image after the marked one, although that has left the gallery.
    index = {image_id: index for index, image_id in enumerate(browser.images.data.image_ids)}
    assert _next(browser, index[second], unmarked) == index[third]
    assert _next(browser, index[ids(browser.gallery(EVERYTHING, 0))[-1]], EVERYTHING) is None


def test_classes_filter_the_gallery(browser: Browser) -> None:
    name = browser.images.data.classes[1]
    shown = ids(browser.gallery(EVERYTHING._replace(class_name=name), 0))
    tagged = {
        browser.images.data.image_ids[i] for i in range(len(browser.images.data)) if name in browser.images.tags(i)
    }
    assert tagged <= set(shown)


def test_downloads_are_the_marks(browser: Browser) -> None:
    set_mark(browser.run, browser.images.data.image_ids[0], {"verdict": "good", "comment": "sharp"})
    text = browser.downloads()
    table, tasks = (base64.b64decode(part).decode() for part in re.findall(r";base64,([^\"]+)", text))
    assert "sharp" in table
    assert "sharp" in tasks
    assert "1 image marked" in text


def test_names_of_users_are_escaped(run_context: Context, tmp_path: Path) -> None:
    shape = shown_shapes(1)
    data = ImageDataset(shape.data.classes, ('<img src=x onerror=1>"${1}{{x}}',), shape.data.labels, shape.data.images)
    images = ShownImages(data, None, have_tags=True)
    browser = Browser(run_context, tmp_path, images, Ranking(run_context, images))
    assert "fills once" in browser.gallery(EVERYTHING, 0)
    browser.ranking.start()
    browser.ranking.wait()
    for text in (browser.gallery(EVERYTHING, 0), browser.detail(0)):
        assert "<img src=x" not in text
        assert "&lt;img src=x" in text


def test_a_page_without_a_run_says_what_to_do(run_context: Context) -> None:
    with pytest.raises(TagsegError, match="tagseg app RUN"):
        open_browser(replace(run_context, run=None))


def test_a_model_of_other_classes_is_refused(context: Context, run: Path) -> None:
    with pytest.raises(TagsegError, match="classes"):
        open_images(replace(context, run=run))


def test_a_damaged_run_is_one_line(run: Path, run_context: Context, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    (copy / "marks.json").write_text("{")
    with pytest.raises(TagsegError, match=r"marks.json.*move it away"):
        open_browser(replace(run_context, run=copy))
