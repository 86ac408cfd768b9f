import io
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image

from tagseg.data import DataError, urls
from tagseg.data.urls import UrlRef, check_url, is_url, url_name

_file = io.BytesIO()
Image.new("RGB", (8, 6)).save(_file, "PNG")
PNG = _file.getvalue()


class Handler(BaseHTTPRequestHandler):
    """Serves an image, redirects to it and elsewhere, and a page that does not exist."""

    locations = {"/moved.png": "/a.png", "/file.png": "file:///etc/hostname", "/ftp.png": "ftp://localhost/a.png"}

    def do_GET(self) -> None:  # the name is the server's
        if self.path in self.locations:
            self.send_response(302)
            self.send_header("Location", self.locations[self.path])
            self.end_headers()
        elif self.path == "/a.png":
            self.send_response(200)
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(PNG)
        else:
            self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()


def test_images_are_downloaded_also_after_a_redirect(server: str) -> None:
    for name in ("a.png", "moved.png"):
        assert Image.open(io.BytesIO(UrlRef(f"{server}/{name}").read())).size == (8, 6)


@pytest.mark.parametrize("name", ["file.png", "ftp.png"])
def test_redirects_to_other_schemes_are_refused(server: str, name: str) -> None:
    with pytest.raises(DataError, match=f"{name}: redirects to .*, which is not followed; name the URL"):
        UrlRef(f"{server}/{name}").read()


def test_what_cannot_be_downloaded_is_named(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"none.png: the server answers 404"):
        UrlRef(f"{server}/none.png").read()
    with pytest.raises(DataError, match="http://127.0.0.1:1/a.png: cannot be downloaded"):
        UrlRef("http://127.0.0.1:1/a.png").read()
    for limit, value, message in (("MAX_BYTES", 10, "has more than"), ("SECONDS_IN_ALL", -1, "takes longer than")):
        with monkeypatch.context() as patch:
            patch.setattr(urls, limit, value)
            with pytest.raises(DataError, match=f"a.png: {message}"):
                UrlRef(f"{server}/a.png").read()


def test_urls_are_told_from_paths() -> None:
    assert is_url("https://example.org/a.jpg")
    assert not any(map(is_url, ("a.jpg", "/a/b.jpg", "C:/a.jpg", "photos.zip:a.jpg", "shapes:20")))
    assert url_name("https://example.org/my%20dog.jpg?w=3") == "my dog.jpg"
    assert url_name("https://example.org") == "example.org"
    check_url("HTTPS://example.org/a.jpg")
    for url, message in (
        ("ftp://example.org/a.jpg", "is neither http nor https"),
        ("file:///etc/passwd", "is neither http nor https"),
        ("http:///a.jpg", "names no host"),
        ("http://[::1/a.jpg", "is not a URL"),
    ):
        with pytest.raises(DataError, match=message):
            check_url(url)
