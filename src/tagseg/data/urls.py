"""Images at URLs: download over http and https, with limits on size and time."""

import re
import time
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tagseg._version import __version__
from tagseg.errors import DataError

if TYPE_CHECKING:
    from urllib.request import HTTPRedirectHandler

MAX_BYTES = 100 * 2**20
SECONDS_OF_SILENCE, SECONDS_IN_ALL = 20.0, 120.0
_SCHEMES = ("http", "https")
_CHUNK = 2**16
_DOWNLOAD = "download the file yourself and name its path"


def is_url(text: str) -> bool:
    """Whether a text is a URL of any scheme, and not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None


def check_url(url: str) -> None:
    """Raise a `DataError` unless a URL can be downloaded: http or https, with a host."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise DataError(f"{url}: is not a URL ({error})", "check its spelling") from None
    if parts.scheme.lower() not in _SCHEMES:
        raise DataError(f"{url}: is neither http nor https", _DOWNLOAD)
    if not host:
        raise DataError(f"{url}: names no host", "check its spelling")


def url_name(url: str) -> str:
    """Last part of a URL's path, or its host if the path is empty."""
    parts = urlsplit(url)
    return PurePosixPath(unquote(parts.path)).name or parts.hostname or ""


@dataclass(frozen=True)
class UrlRef:
    """A file at a URL."""

    url: str

    def __str__(self) -> str:
        return self.url

    def read(self) -> bytes:
        """Download the file.

        Raises:
            DataError: It cannot be downloaded, is larger than 100 MiB, or takes longer than two minutes.
        """
        # urllib's openers take a hundredth of a second to import, which local files need not wait for.
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

        opener: OpenerDirector = build_opener(ProxyHandler, HTTPHandler, HTTPSHandler, _redirect_handler())
        request = Request(self.url, headers={"User-Agent": f"tagseg/{__version__}"})
        try:
            with opener.open(request, timeout=SECONDS_OF_SILENCE) as response:
                return self._read(response)
        except HTTPError as error:
            if location := error.headers.get("Location"):
                raise DataError(
                    f"{self.url}: redirects to {location}, which is not followed", "name the URL of the image itself"
                ) from None
            raise DataError(f"{self.url}: the server answers {error.code} ({error.reason})", "check the URL") from None
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, DataError):
                raise
            reason = getattr(error, "reason", None) or error
            raise DataError(f"{self.url}: cannot be downloaded ({reason})", "check the URL and the network") from None

    def _read(self, response: IO[bytes]) -> bytes:
        deadline, content = time.monotonic() + SECONDS_IN_ALL, bytearray()
        while chunk := response.read1(_CHUNK):  # type: ignore[attr-defined]  # returns what has come
            content += chunk
            if len(content) > MAX_BYTES:
                raise DataError(
                    f"{self.url}: has more than {MAX_BYTES // 2**20} MiB",
                    "download the file yourself and name its path",
                )
            if time.monotonic() > deadline:
                raise DataError(f"{self.url}: takes longer than {SECONDS_IN_ALL:.0f} seconds", _DOWNLOAD)
        return bytes(content)


def _redirect_handler() -> "HTTPRedirectHandler":
    """Handler that follows redirects to http and https only, and never from https to http."""
    from http.client import HTTPMessage
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request

    class SchemeCheck(HTTPRedirectHandler):
        def redirect_request(
            self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
        ) -> Request | None:
            scheme = urlsplit(newurl).scheme.lower()
            if scheme not in _SCHEMES or (req.type == "https" and scheme == "http"):
                raise HTTPError(req.full_url, code, msg, headers, fp)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    return SchemeCheck()
