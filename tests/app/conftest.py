"""A server of the page in this process, and a headless Chromium where the machine has one."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

import tagseg
from tagseg.app.context import Context, ModelQueue
from tests.app.chromium import ARGUMENTS, find_chromium
from tests.app.runs import open_run, train_small

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def context() -> Context:
    return Context(tagseg.load("default", device="cpu"), "default", None, ModelQueue())


@pytest.fixture(scope="session")
def url(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of the default model."""
    with serve(context, tmp_path_factory.mktemp("gradio")) as url:
        yield url


@contextmanager
def serve(context: Context, folder: Path) -> Iterator[str]:
    """Serve a page, and give its address.

    Args:
        context: What it works with.
        folder: Folder for gradio's files; only the first of a session is used.
    """
    os.environ["GRADIO_TEMP_DIR"] = str(folder)
    from tagseg.app.server import build_server

    server = uvicorn.Server(uvicorn.Config(build_server(context), log_level="warning", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium; install it (make test-app does), or set TAGSEG_CHROMIUM to its path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The page of the default model."""
    with open_page(browser, url) as page:
        yield page


@contextmanager
def open_page(browser: Browser, url: str) -> Iterator[Page]:
    """Open a page in a wide window; a request to elsewhere or an error in its console fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", accept_downloads=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if _is_elsewhere(request.url, url) else None)
    page.goto(url)
    yield page
    context.close()
    assert not problems


@pytest.fixture(scope="session")
def axe() -> str:
    """Source of axe-core, which finds violations of accessibility."""
    for path in (os.environ.get("TAGSEG_AXE", ""), ROOT / "node_modules" / "axe-core" / "axe.min.js"):
        if path and Path(path).is_file():
            return Path(path).read_text()
    pytest.skip("no axe-core; npm install --no-save axe-core (make test-app does), or set TAGSEG_AXE to its axe.min.js")


@pytest.fixture
def record_screenshot() -> Callable[[Page, str], None]:
    """Write a screenshot of the whole page to the folder TAGSEG_SCREENSHOTS, if it is set."""

    def record(page: Page, name: str) -> None:
        if folder := os.environ.get("TAGSEG_SCREENSHOTS"):
            page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    return record


def _is_elsewhere(address: str, url: str) -> bool:
    return not address.startswith((url, "data:", "blob:"))


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a small run."""
    return train_small(tmp_path_factory.mktemp("runs") / "shapes")


@pytest.fixture(scope="session")
def run_context(run: Path) -> Context:
    """What the page of the small run works with."""
    return open_run(run)


@pytest.fixture(scope="session")
def run_url(run_context: Context, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server of the small run."""
    with serve(run_context, tmp_path_factory.mktemp("gradio")) as url:
        yield url


@pytest.fixture
def run_page(browser: Browser, run_url: str) -> Iterator[Page]:
    """The page of the small run."""
    with open_page(browser, run_url) as page:
        yield page
