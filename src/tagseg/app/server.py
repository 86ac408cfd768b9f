"""The server of the page: our own routes, gradio's page, and the guard around both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import gradio as gr
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

import tagseg
from tagseg.app.context import Context
from tagseg.app.guard import ASGIApp, Guard
from tagseg.app.images import SAMPLES, SAMPLES_ROUTE
from tagseg.app.page import CSS, STATIC_FOLDER, STATIC_ROUTE, build_page, head, theme
from tagseg.app.predict_api import predict_routes
from tagseg.errors import TagsegError


def build_server(context: Context, *, password: str | None = None) -> ASGIApp:
    """Build the server as an ASGI application.

    Args:
        context: The model and the run.
        password: Password that requests must have, as in `Guard`.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        context.queue.close()
        context.training.stop()

    # The usual pages of the API's documentation load scripts from elsewhere; openapi.json has the same content.
    server = FastAPI(title="tagseg", version=tagseg.__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    server.include_router(predict_routes(context))
    server.mount(STATIC_ROUTE, StaticFiles(directory=STATIC_FOLDER))

    @server.get(f"{SAMPLES_ROUTE}/{{name}}", include_in_schema=False)
    def sample(name: str) -> FileResponse:
        if name not in SAMPLES:
            raise HTTPException(404, f"no sample of this name; there are {', '.join(SAMPLES)}")
        return FileResponse(SAMPLES[name])

    @server.exception_handler(TagsegError)
    def refuse(_: Request, error: TagsegError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 400)

    @server.exception_handler(RequestValidationError)
    def refuse_form(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return JSONResponse({"detail": f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"}, 422)

    gr.mount_gradio_app(
        server,
        build_page(context),
        path="/",
        favicon_path=str(STATIC_FOLDER / "favicon.svg"),
        footer_links=[],
        run_history=False,
        theme=theme(),
        css=CSS,
        head=head(),
        ssr_mode=False,
        mcp_server=False,
        show_error=True,
    )
    return Guard(server, password=password, is_local=context.is_local)
