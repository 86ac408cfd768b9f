"""HTML of the tabs: templates in which everything is escaped, with images inside them, so that no file is served."""

import html
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
import numpy as np

from tagseg.app.context import QueueFullError
from tagseg.data.images import Pixels
from tagseg.data.masks import Mask
from tagseg.errors import TagsegError
from tagseg.predict.resize import ClassMask
from tagseg.report.gallery import Cell, class_map_cell, ground_truth_class_map, thumbnail, to_cell
from tagseg.report.page import template_environment

SIDE = 480  # of an image, in pixels

_environment = template_environment("tagseg.app")
_environment.filters["percent"] = lambda share, digits=0: f"{100 * share:.{digits}f} %"


def render(template: str, **values: Any) -> str:
    """Fill in a template of the folder `templates`."""
    return _environment.get_template(f"{template}.html.j2").render(**values)


def notice(text: str) -> str:
    """A paragraph in place of a result."""
    return render("notice", text=text)


@contextmanager
def shown_errors() -> Iterator[None]:
    """Show what a user can fix as a message on the page."""
    try:
        yield
    except (TagsegError, QueueFullError) as error:
        text = (
            "Too many requests wait for the model; try again later."
            if isinstance(error, QueueFullError)
            else str(error)
        )
        raise gr.Error(html.escape(text), duration=None, print_exception=False) from None


def image_cell(pixels: Pixels, name: str, *, side: int = SIDE) -> Cell:
    """An image, reduced to the page."""
    return to_cell(thumbnail(pixels, side), name)


def overlay_cell(pixels: Pixels, mask: ClassMask, classes: list[str], name: str, *, side: int = SIDE) -> Cell:
    """An image with a mask over it; the description lists the classes.

    Args:
        pixels: The image, [H, W, 3].
        mask: 0 for the background, k for the k-th class, [H, W].
        classes: Class names.
        name: What the mask is.
        side: Longest side on the page.
    """
    return class_map_cell(thumbnail(pixels, side), mask.astype(np.int64), classes, name)


def ground_truth_cell(pixels: Pixels, mask: Mask, classes: list[str], *, side: int = SIDE) -> Cell:
    """An image with its ground-truth mask over it; ignored pixels are gray and dark."""
    return class_map_cell(thumbnail(pixels, side), ground_truth_class_map(mask), classes, "ground truth")
