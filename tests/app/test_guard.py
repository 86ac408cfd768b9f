"""What is let through: this machine's requests to the routes of the page, or requests with the password."""

import asyncio
from base64 import b64encode
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from tagseg.app.guard import MAX_EVENT_BYTES, MAX_UPLOAD_BYTES, Guard
from tests.app.requests import request

OPEN = PlainTextResponse("through")


def ask(
    guard: Guard, method: str = "GET", path: str = "/", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer to a request without a body."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    named = {"host": "127.0.0.1:7860", "content-length": "0", **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in named.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": encoded}
    asyncio.run(guard(scope, receive, send))
    assert sent[-1].get("more_body", False) is False
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


@pytest.fixture
def local() -> Guard:
    return Guard(OPEN, password=None, is_local=True)


@pytest.fixture
def remote() -> Guard:
    return Guard(OPEN, password="sesame ä", is_local=False)


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost", "LOCALHOST:1", "[::1]:7860", "127.0.0.2"])
def test_this_machine_is_let_through(local: Guard, host: str) -> None:
    assert ask(local, headers={"host": host})[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "10.0.0.1", "[::1"])
def test_other_names_of_this_machine_are_refused(local: Guard, host: str) -> None:
    """A page from elsewhere whose name resolves to 127.0.0.1 must not read this one."""
    assert ask(local, headers={"host": host})[0] == 421


def authorization(text: str, scheme: str = "Basic") -> dict[str, str]:
    return {"authorization": f"{scheme} {b64encode(text.encode()).decode()}", "host": "gpu.example"}


def test_the_password_is_asked_for(remote: Guard) -> None:
    assert ask(remote, headers=authorization("anyone:sesame ä"))[0] == 200
    assert ask(remote, headers=authorization(":sesame ä"))[0] == 200
    for wrong in (
        {},
        authorization("anyone:sesame"),
        authorization("sesame ä"),
        authorization("anyone:sesame ä", "Bearer"),
        {"authorization": "Basic ???"},
        {"authorization": "Basic"},
    ):
        for path in ("/", "/health", "/openapi.json", "/app/static/try.js", "/nothing"):
            status, headers = ask(remote, path=path, headers=wrong)
            assert (status, headers["www-authenticate"]) == (401, 'Basic realm="tagseg"')


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/upload",
        "/gradio_api/proxy=http://127.0.0.1:22/",
        "/gradio_api/file=http://169.254.169.254/latest",
        "/gradio_api/file=HTTPS://169.254.169.254/latest",
        "/gradio_api/vibe-code",
        "/gradio_api/runs",
        "/gradio_api/run/predict",
        "/monitoring",
        "/login",
        "/docs",
        "/gradio_api/queue/../upload",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_gradios_other_routes_are_closed(local: Guard, method: str, path: str) -> None:
    assert ask(local, method, path)[0] in (404, 405)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "get"])
def test_other_methods_are_refused(local: Guard, method: str) -> None:
    assert ask(local, method)[0] == 405


def test_other_pages_cannot_post(local: Guard) -> None:
    assert ask(local, "POST", "/predict", {"origin": "http://127.0.0.1:7860"})[0] == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:80", "http://127.0.0.1"):
        assert ask(local, "POST", "/predict", {"origin": origin})[0] == 403


def test_bodies_are_bounded(local: Guard) -> None:
    limits = {"/predict": MAX_UPLOAD_BYTES + MAX_EVENT_BYTES, "/gradio_api/queue/join": MAX_EVENT_BYTES}
    for path, limit in limits.items():
        assert ask(local, "POST", path, {"content-length": str(limit)})[0] == 200
        assert ask(local, "POST", path, {"content-length": str(limit + 1)})[0] == 413
        for length in ("", "many", "-1"):
            assert ask(local, "POST", path, {"content-length": length})[0] == 411


def test_headers_keep_browsers_from_loading_anything_from_elsewhere(local: Guard) -> None:
    for path in ("/", "/nothing"):
        headers = ask(local, path=path)[1]
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"


def test_files_of_this_machine_are_not_served(url: str) -> None:
    for path in ("/etc/passwd", "..%2f..%2f..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "/proc/self/environ", __file__):
        for route in ("/gradio_api/file=", "/app/static/", "/app/samples/", "/assets/", "/static/"):
            assert request(url, "GET", route + path).status in (403, 404), (route, path)
