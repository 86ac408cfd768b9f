"""Tab Try: drop an image, see its masks. The element `tagseg-try` of static/try.js does the work by POST /predict."""

import html
import json
from pathlib import Path

import gradio as gr

import tagseg
from tagseg.app.context import Context
from tagseg.app.guard import MAX_UPLOAD_BYTES

SAMPLES = {path.name: path for path in sorted((Path(tagseg.__file__).parent / "photos").glob("*.jpg"))}
SAMPLES_ROUTE = "/app/samples"
_SIZES = (256, 384, 512, 768, 1024)


def build(context: Context) -> None:
    """Build the tab."""
    settings = {
        "classes": context.model.classes,
        "size": context.model.settings.size,
        "sizes": _SIZES,
        "maxBytes": MAX_UPLOAD_BYTES,
        "samples": [f"{SAMPLES_ROUTE}/{name}" for name in SAMPLES],
    }
    gr.HTML(f'<tagseg-try settings="{html.escape(json.dumps(settings))}"></tagseg-try>')
