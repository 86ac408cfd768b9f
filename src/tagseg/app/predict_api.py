"""POST /predict: an image in, its mask out, for this page and for programs."""

import asyncio
import base64
import io
import time
from dataclasses import dataclass, replace
from pathlib import PureWindowsPath
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from fastapi import APIRouter, File, Form, HTTPException, Query, Request, UploadFile
from fastapi.responses import JSONResponse, Response
from PIL import Image

from tagseg.app.context import Context, QueueFullError
from tagseg.app.guard import MAX_UPLOAD_BYTES, PREDICT_ROUTE
from tagseg.data.images import Pixels, decode, open_image
from tagseg.errors import ConfigError, printable
from tagseg.export.coco import annotate
from tagseg.predict.prediction import Prediction
from tagseg.predict.render import overlay_palette
from tagseg.predict.settings import WorkingSize

MAX_UPLOAD_MEGAPIXELS = 50
MAX_SIZE = 2048  # pixels of the longest side; the network needs memory and time for each
_SECONDS_BETWEEN_LOOKS = 0.5
_MAX_NAME_LENGTH = 100
_MAX_VIEW_SIDE = 1600

Format = Literal["json", "png", "coco"]


@dataclass(frozen=True)
class _Settings:
    """Settings of a request, as `Predictor.predict` takes them."""

    tta: bool
    crf: bool
    size: WorkingSize | None
    tags: list[str] | None


def predict_routes(context: Context) -> APIRouter:
    """Routes POST /predict, GET /queue/{name} and GET /health."""
    router = APIRouter()

    @router.post(
        PREDICT_ROUTE,
        summary="Segment an image",
        response_class=JSONResponse,
        responses={
            200: {
                "description": "JSON with classes, scores and the mask, the mask as an indexed PNG, or COCO's JSON.",
                "content": {"image/png": {}},
            },
            400: {"description": "The image or a setting cannot be used."},
            413: {"description": "The request has too many bytes, or the image too many pixels."},
            503: {"description": "Too many requests wait."},
        },
    )
    async def predict(
        request: Request,
        image: Annotated[UploadFile, File(description="JPEG, PNG, WebP, AVIF, TIFF, BMP, GIF or HEIC.")],
        tta: Annotated[bool, Form(description="Test-time augmentation: multi-scale and flip.")] = False,
        crf: Annotated[bool, Form(description="Refine the mask by a dense CRF.")] = False,
        size: Annotated[
            str, Form(description=f"Longest side for the network in pixels, up to {MAX_SIZE}; the model's if empty.")
        ] = "",
        tags: Annotated[
            list[str] | None,
            Form(description="A class that the image is known to have; repeat the field for several."),
        ] = None,
        view: Annotated[bool, Form(description="Add the image as a JPEG of up to 1600 pixels a side.")] = False,
        name: Annotated[str, Form(description="Name for GET /queue/NAME.", pattern=r"^[\w-]{0,64}$")] = "",
        format: Annotated[
            Format | None, Query(description="Format of the answer; by default what the header Accept asks for.")
        ] = None,
    ) -> Response:
        """Segment an image. Requests are answered one by one, in the order in which they came."""
        settings = _Settings(tta, crf, _parse_size(size), None if tags is None else [tag for tag in tags if tag])
        chosen = format or ("png" if _prefers_png(request.headers.get("accept", "")) else "json")
        asked = time.perf_counter()

        def job() -> Response:
            started = time.perf_counter()
            pixels = read_upload(image.file, image.filename or "image")
            decoded = time.perf_counter()
            prediction = _segment(context, pixels, image.filename or "image", settings)
            seconds = {
                "wait": started - asked,
                "decode": decoded - started,
                "predict": time.perf_counter() - decoded,
            }
            return _answer(prediction, chosen, seconds, view=view)

        try:
            future = context.queue.submit(job, name)
        except QueueFullError:
            raise HTTPException(503, "too many requests wait; try again later", {"Retry-After": "10"}) from None
        waiter = asyncio.ensure_future(asyncio.wrap_future(future))
        while not waiter.done():
            await asyncio.wait([waiter], timeout=_SECONDS_BETWEEN_LOOKS)
            if not waiter.done() and await request.is_disconnected():
                waiter.cancel()  # takes the job out of the queue unless it runs
                raise HTTPException(499, "the client is gone")
        return waiter.result()

    @router.get("/queue/{name}", summary="How many requests are before one")
    def queue(name: str) -> dict[str, int | None]:
        """Number of requests before the one of this name: 0 once it runs, null if it is not there."""
        return {"before": context.queue.jobs_before(name)}

    @router.get("/health", summary="Whether the server is ready, and its model")
    def health() -> dict[str, Any]:
        """The model, and the number of requests that run or wait."""
        return {
            "status": "ok",
            "model": context.model.description,
            "classes": context.model.classes,
            "requests": len(context.queue),
        }

    return router


def read_upload(file: BinaryIO, name: str) -> Pixels:
    """Decode an uploaded image within the limits of this page.

    Raises:
        HTTPException: It has too many pixels.
        DataError: It is no image, or damaged.
    """
    data = file.read(MAX_UPLOAD_BYTES + 1)
    name = _base_name(name)
    try:
        with open_image(data) as image:
            num_pixels = image.width * image.height
    except Image.DecompressionBombError:
        num_pixels = Image.MAX_IMAGE_PIXELS or 0
    except Exception:
        num_pixels = 0  # decode says what is wrong
    if num_pixels > MAX_UPLOAD_MEGAPIXELS * 10**6:
        raise HTTPException(413, f"{name}: has more than {MAX_UPLOAD_MEGAPIXELS} megapixels; reduce the image")
    return decode(data, name)


def to_coco(prediction: Prediction) -> dict[str, Any]:
    """Convert a prediction to a COCO dataset of one image."""
    summary = prediction.summary()
    return {
        "images": [{"id": 1, "file_name": prediction.name, **summary["size"]}],
        "categories": [{"id": value, "name": name} for value, name in enumerate(prediction.scores, start=1)],
        "annotations": [
            {
                "id": number,
                "image_id": 1,
                **annotate(entry["value"], prediction.mask == entry["value"]),
                "score": prediction.scores[entry["name"]],
            }
            for number, entry in enumerate(summary["classes"], start=1)
        ],
    }


def _segment(context: Context, pixels: Pixels, name: str, settings: _Settings) -> Prediction:
    prediction = context.model.predict(
        pixels, tta=settings.tta, crf=settings.crf, size=settings.size, tags=settings.tags, probabilities=False
    )
    return replace(prediction, name=_base_name(name))


def _answer(prediction: Prediction, format: Format, seconds: dict[str, float], *, view: bool) -> Response:
    if format == "png":
        return Response(_png(prediction.mask_image()), media_type="image/png")
    coco = to_coco(prediction)
    if format == "coco":
        return JSONResponse(coco)
    summary = prediction.summary()
    colors = overlay_palette(1 + len(prediction.scores)).tolist()
    for entry in summary["classes"]:
        entry["color"] = colors[entry["value"]]
    answer = {
        **summary,
        "seconds": seconds,
        "mask": {"png": _base64(_png(prediction.mask_image())), "runs": _runs(prediction)},
        "coco": coco,
    }
    if view:
        answer["view"] = _base64(_view(prediction.image))
    return JSONResponse(answer)


def _runs(prediction: Prediction) -> list[int]:
    """The mask row by row as value, length, value, length, ..."""
    values = prediction.mask.ravel()
    starts = np.flatnonzero(np.diff(values, prepend=values[0] ^ 1))
    lengths = np.diff(starts, append=values.size)
    return np.stack([values[starts].astype(np.int64), lengths], 1).ravel().tolist()


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _view(pixels: Pixels) -> bytes:
    """The image as JPEG, small enough for a screen, for formats that browsers do not show."""
    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    image.thumbnail((_MAX_VIEW_SIDE, _MAX_VIEW_SIDE))
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _base_name(name: str) -> str:
    """Name of an uploaded file without folders; it names results and messages, never a file."""
    return printable(PureWindowsPath(name).name)[:_MAX_NAME_LENGTH] or "image"


def _prefers_png(accept: str) -> bool:
    return "image/png" in accept and "application/json" not in accept


def _parse_size(text: str) -> WorkingSize | None:
    if not text:
        return None
    if text == "native":
        return "native"
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_SIZE):
        raise ConfigError(f"size: {text!r} is neither native nor a number of pixels up to {MAX_SIZE}")
    return int(text)
