"""Requests to a server as programs send them, without a library that would correct them."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

BOUNDARY = "tagseg-boundary"


@dataclass(frozen=True)
class Answer:
    """Answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def request(
    url: str, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """Send a request on a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def multipart(
    image: bytes, file_name: str = "image.png", content_type: str = "image/png", **fields: str | list[str]
) -> bytes:
    """A form with an image."""
    parts = [
        f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode()
        for name, values in fields.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    disposition = f'Content-Disposition: form-data; name="image"; filename="{file_name}"'
    parts.append(f"{disposition}\r\nContent-Type: {content_type}\r\n\r\n".encode() + image)
    return b"".join(b"--%s\r\n%s\r\n" % (BOUNDARY.encode(), part) for part in parts) + f"--{BOUNDARY}--\r\n".encode()


def predict(
    url: str,
    image: bytes,
    *,
    file_name: str = "image.png",
    content_type: str = "image/png",
    query: str = "",
    headers: Mapping[str, str] | None = None,
    **fields: str | list[str],
) -> Answer:
    """Post an image to /predict."""
    form = multipart(image, file_name, content_type, **fields)
    form_type = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return request(url, "POST", f"/predict{query}", form, {**form_type, **(headers or {})})
