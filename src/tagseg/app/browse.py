"""Tab Browse: the validation images of the run, those to look at first, and marks of good and bad ones."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from tagseg.app.context import Context
from tagseg.app.images import ShownImages, open_images
from tagseg.app.marks import MARKS_FILE, Mark, marks_to_csv, marks_to_tasks, read_marks, set_mark
from tagseg.app.markup import ground_truth_cell, image_cell, notice, overlay_cell, render, shown_errors
from tagseg.app.ranking import ORDERS, ExaminedImage, Ranking, find_doubts, orders, with_class
from tagseg.errors import TagsegError

PAGE_SIZE = 24
ALL_CLASSES = "All classes"
MARKS = {"All": None, "Good": "good", "Bad": "bad", "Without a mark": "none"}
VERDICTS = [("No mark", "none"), ("Good", "good"), ("Bad", "bad")]
_SECONDS_BETWEEN_LOOKS = 2.0
# A card of the gallery is a button: a click or the Enter key selects its image.
_SELECT_CARD = """element.addEventListener("click", (event) => {
  const card = event.target.closest("[data-image]");
  if (card) trigger("select", { index: Number(card.dataset.image) });
})"""


class Filter(NamedTuple):
    """What of the gallery is shown, and in which order."""

    order: str
    class_name: str
    mark: str


@dataclass(frozen=True)
class Browser:
    """The gallery of a run.

    Attributes:
        context: The model and the run.
        run: Folder of the run, which keeps the marks.
        images: Validation images.
        ranking: Results of the model for them.
    """

    context: Context
    run: Path
    images: ShownImages
    ranking: Ranking

    def select(self, chosen: Filter) -> list[ExaminedImage]:
        """Images that pass a filter, in its order."""
        examined = self.ranking.examined
        ordered = ORDERS[chosen.order](examined, find_doubts(self.context, self.images, examined))
        if chosen.class_name != ALL_CLASSES:
            ordered = with_class(ordered, self.images, chosen.class_name)
        if (verdict := MARKS[chosen.mark]) is not None:
            marks = read_marks(self.run)
            ordered = [image for image in ordered if _mark(marks, image.image_id)["verdict"] == verdict]
        return ordered

    def gallery(self, chosen: Filter, page: int) -> str:
        """HTML of a page of the gallery, counted from 0."""
        selected = self.select(chosen)
        if not self.ranking.examined:
            return notice("The gallery fills once the model runs on the images.")
        if not selected:
            return notice("No image passes this filter.")
        page = min(page, (len(selected) - 1) // PAGE_SIZE)
        page_images = selected[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
        return render(
            "browse_gallery",
            cards=self._cards(page_images),
            first=page * PAGE_SIZE + 1,
            last=page * PAGE_SIZE + len(page_images),
            total=len(selected),
        )

    def status(self) -> str:
        """HTML of how many images are examined."""
        return render("browse_status", ranking=self.ranking, done=len(self.ranking.examined))

    def detail(self, index: int) -> str:
        """HTML of an image with its mask and its ground truth, large."""
        image = next(image for image in self.ranking.examined if image.index == index)
        pixels = self.images.data.images.read(index)
        prediction = self.context.queue.run(lambda: self.context.model.predict(pixels, probabilities=False))
        classes = list(self.context.model.classes)
        cells = {
            "Image": image_cell(pixels, image.image_id),
            "Prediction": overlay_cell(pixels, prediction.mask, classes, "prediction"),
        }
        if (ground_truth := self.images.ground_truth(index)) is not None:
            cells["Ground truth"] = ground_truth_cell(pixels, ground_truth, classes)
        return render("browse_detail", cells=cells, card=self._cards([image])[0])

    def downloads(self) -> str:
        """HTML of the links that download the list of marked images."""
        marks = read_marks(self.run)
        files = {
            "List of marks (CSV)": ("marks.csv", "text/csv", marks_to_csv(marks, self.images)),
            "Tasks of Label Studio (JSON)": (
                "label-studio.json",
                "application/json",
                marks_to_tasks(marks, self.images),
            ),
        }
        links = [
            (name, file, f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}")
            for name, (file, kind, text) in files.items()
        ]
        return render("browse_downloads", links=links, count=len(marks), file=self.run / MARKS_FILE)

    def _cards(self, examined: Sequence[ExaminedImage]) -> list[dict[str, Any]]:
        doubts = find_doubts(self.context, self.images, self.ranking.examined)
        marks = read_marks(self.run)
        return [
            {
                "image": image,
                "tags": self.images.tags(image.index),
                "doubts": [
                    (doubt.is_tagged, self.images.data.classes[doubt.class_index], doubt.score)
                    for doubt in doubts.get(image.index, [])
                ],
                "mark": _mark(marks, image.image_id),
            }
            for image in examined
        ]


def open_browser(context: Context) -> Browser:
    """Open the gallery of the page's run.

    Raises:
        TagsegError: There is no run, or its images or marks cannot be opened.
    """
    if context.run is None:
        raise TagsegError(
            "This page was opened for a model alone; its validation images are in the folder of its run: tagseg app RUN"
        )
    read_marks(context.run)
    images = open_images(context)
    return Browser(context, context.run, images, Ranking(context, images))


def build(context: Context) -> None:
    """Build the tab."""
    try:
        browser = open_browser(context)
    except TagsegError as error:
        gr.HTML(notice(str(error)), apply_default_css=False)
        return
    orders_here = orders(context, browser.images)
    with gr.Row(equal_height=True):
        order = gr.Dropdown(orders_here, value=orders_here[0], label="Order", min_width=170)
        class_name = gr.Dropdown([ALL_CLASSES, *context.model.classes], value=ALL_CLASSES, label="Class", min_width=170)
        mark_filter = gr.Dropdown(list(MARKS), value="All", label="Mark", min_width=170)
        examine = gr.Button(f"Run the model on {browser.ranking.total:,} images", variant="primary", min_width=170)
    status = gr.HTML("", apply_default_css=False)
    chosen = [order, class_name, mark_filter]
    page, selected = gr.State(0), gr.State(None)
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            gallery = gr.HTML("", js_on_load=_SELECT_CARD, apply_default_css=False)
            with gr.Row():
                previous_page = gr.Button("Previous page", min_width=120)
                next_page = gr.Button("Next page", min_width=120)
        with gr.Column(scale=2, min_width=320):
            detail = gr.HTML(notice("Select an image to see it large and to mark it."), apply_default_css=False)
            with gr.Column(visible=False) as form:
                verdict = gr.Radio(VERDICTS, value="none", label="Mark")
                comment = gr.Textbox(label="Comment", lines=2, max_length=2000)
                with gr.Row():
                    save = gr.Button("Save", variant="primary", min_width=90)
                    save_and_next = gr.Button("Save, next image", min_width=130)
                    next_image = gr.Button("Next image", min_width=110)
    downloads = gr.HTML(browser.downloads, apply_default_css=False)
    timer = gr.Timer(_SECONDS_BETWEEN_LOOKS, active=False)

    def show_page(number: int, *filters: str) -> tuple[str, str, int]:
        with shown_errors():
            last = max(0, (len(browser.select(Filter(*filters))) - 1) // PAGE_SIZE)
            number = min(max(0, number), last)
            return browser.gallery(Filter(*filters), number), browser.status(), number

    def look(number: int, *filters: str) -> tuple[Any, ...]:
        return (*show_page(number, *filters), gr.Timer(active=browser.ranking.is_running))

    def start(number: int, *filters: str) -> tuple[Any, ...]:
        browser.ranking.start()
        browser.ranking.wait(_SECONDS_BETWEEN_LOOKS / 2)  # the first images show at once
        return (*show_page(number, *filters), gr.Timer(active=True))

    def open_detail(index: int) -> tuple[Any, ...]:
        with shown_errors():
            mark = _mark(read_marks(browser.run), browser.images.data.image_ids[index])
            return index, browser.detail(index), gr.Column(visible=True), mark["verdict"], mark["comment"]

    def open_card(event: gr.EventData) -> tuple[Any, ...]:
        return open_detail(int(event.index))

    def open_next(index: int, *filters: str) -> tuple[Any, ...]:
        with shown_errors():
            following = _next(browser, index, Filter(*filters))
        if following is None:
            raise gr.Error("This is the last image of the gallery.", print_exception=False)
        return open_detail(following)

    def keep(index: int, verdict: str, text: str, number: int, *filters: str) -> tuple[Any, ...]:
        with shown_errors():
            mark: Mark = {"verdict": verdict, "comment": text.strip()}  # type: ignore[typeddict-item]
            set_mark(browser.run, browser.images.data.image_ids[index], mark)
            return (*show_page(number, *filters), browser.downloads(), browser.detail(index))

    views = [gallery, status, page]
    details = [selected, detail, form, verdict, comment]
    hidden: dict[str, Any] = {"show_progress": "hidden"}
    everything = Filter(orders_here[0], ALL_CLASSES, "All")
    gr.on(None, lambda: look(0, *everything), None, [*views, timer], **hidden)  # when the page is opened
    examine.click(start, [page, *chosen], [*views, timer])
    timer.tick(look, [page, *chosen], [*views, timer], **hidden)
    gr.on([part.input for part in chosen], lambda *filters: show_page(0, *filters), chosen, views, **hidden)
    previous_page.click(lambda number, *filters: show_page(number - 1, *filters), [page, *chosen], views, **hidden)
    next_page.click(lambda number, *filters: show_page(number + 1, *filters), [page, *chosen], views, **hidden)
    gallery.select(open_card, None, details, scroll_to_output=True, show_progress_on=detail)
    next_image.click(open_next, [selected, *chosen], details, show_progress_on=detail)
    mark_inputs = [selected, verdict, comment, page, *chosen]
    save.click(keep, mark_inputs, [*views, downloads, detail], show_progress_on=detail)
    save_and_next.click(keep, mark_inputs, [*views, downloads, detail], **hidden).success(
        open_next, [selected, *chosen], details, show_progress_on=detail
    )


def _next(browser: Browser, index: int, chosen: Filter) -> int | None:
    """Index of the image after another one in the gallery; the other one may have left it by its new mark."""
    everything = [image.index for image in browser.select(chosen._replace(mark="All"))]
    filtered = {image.index for image in browser.select(chosen)}
    position = everything.index(index) if index in everything else -1
    return next((other for other in everything[position + 1 :] if other in filtered), None)


def _mark(marks: dict[str, Mark], image_id: str) -> Mark:
    return marks.get(image_id, {"verdict": "none", "comment": ""})
