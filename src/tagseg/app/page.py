"""The page: a tab for each thing that a user does, in gradio's frame."""

import asyncio
import html
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import gradio as gr

from tagseg.app import browse, compare, inside, train
from tagseg.app.context import Context
from tagseg.app.guard import MAX_UPLOAD_BYTES
from tagseg.app.images import SAMPLES, SAMPLES_ROUTE

STATIC_FOLDER = Path(__file__).parent / "static"
STATIC_ROUTE = "/app/static"
_SIZES = (256, 384, 512, 768, 1024)
_SECONDS_BETWEEN_SIGNS = 60.0
_SYSTEM_FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif")
_MONOSPACE_FONTS = ("ui-monospace", "Menlo", "Consolas", "monospace")

# The theme has no accent of its own for dark pages, and leaves the browser's own controls light there.
CSS = ".dark { color-scheme: dark; --color-accent: var(--primary-400); }"


def _build_try(context: Context) -> None:
    """Build the tab Try: the element `tagseg-try` of static/try.js shows the masks of an image by POST /predict."""
    settings = {
        "classes": context.model.classes,
        "size": context.model.settings.size,
        "sizes": _SIZES,
        "maxBytes": MAX_UPLOAD_BYTES,
        "samples": [f"{SAMPLES_ROUTE}/{name}" for name in SAMPLES],
    }
    gr.HTML(f'<tagseg-try settings="{html.escape(json.dumps(settings))}"></tagseg-try>')


# Name of each tab -> function that builds it; called inside the tab.
TABS: dict[str, Callable[[Context], None]] = {
    "Try": _build_try,
    "Browse": browse.build,
    "Look inside": inside.build,
    "Compare": compare.build,
    "Train": train.build,
}


def build_page(context: Context) -> gr.Blocks:
    """Build the page with all its tabs."""
    page = gr.Blocks(title="tagseg", analytics_enabled=False, fill_width=True)
    with page:
        name, method, backbone = context.model.description.values()
        model = f"<b>{html.escape(name)}</b>: {method}, {backbone}, {len(context.model.classes)} classes"
        gr.HTML(f"<h1>tagseg</h1><p>Model {model}</p>")
        with gr.Tabs():
            for tab, build in TABS.items():
                with gr.Tab(tab):
                    build(context)
        gr.on(None, _stay_connected, show_progress="hidden", concurrency_limit=None)  # when the page is opened
    return page


async def _stay_connected() -> AsyncIterator[None]:
    """An event that lasts as long as the page is open, so that its stream of answers is never closed.

    Without one, gradio closes the stream when the last event ends, and loses an event that begins at this moment.
    """
    while True:
        await asyncio.sleep(_SECONDS_BETWEEN_SIGNS)
        yield


def theme() -> gr.themes.Base:
    """Gradio's theme with the fonts of the system, none of which is downloaded, and texts that are easy to read."""
    return gr.themes.Default(
        primary_hue="blue",
        font=[gr.themes.Font(name) for name in _SYSTEM_FONTS],
        font_mono=[gr.themes.Font(name) for name in _MONOSPACE_FONTS],
    ).set(
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        color_accent="*primary_600",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
    )


def head() -> str:
    """What the page's head loads: the scripts of our own elements, and the styles of the tabs."""
    return f'<link rel="stylesheet" href="{STATIC_ROUTE}/tabs.css">' + "".join(
        f'<script type="module" src="{STATIC_ROUTE}/{script.name}"></script>'
        for script in sorted(STATIC_FOLDER.glob("*.js"))
    )
