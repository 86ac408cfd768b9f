"""POST /predict: the same masks as in Python, in every format, and a clear answer to whatever else is sent."""

import base64
import io
import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO

import tagseg
from tagseg.app.context import MAX_WAITING, Context
from tests.app.requests import BOUNDARY, multipart, predict, request

PHOTO = Path(tagseg.__file__).parent / "photos" / "chelsea.jpg"


@pytest.fixture(scope="module")
def photo() -> bytes:
    return PHOTO.read_bytes()


def to_file(image: Image.Image, format: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format)
    return buffer.getvalue()


def test_json_has_the_prediction_of_the_library(url: str, context: Context, photo: bytes) -> None:
    answer = predict(url, photo, file_name="chelsea.jpg", size="256")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    expected = context.queue.run(lambda: context.model.predict(PHOTO, size=256))
    result = answer.json()
    summary = json.loads(expected.to_json())
    assert result["scores"] == pytest.approx(summary["scores"], abs=1e-6)
    assert result["classes"][0].pop("color") == [165, 255, 135]
    assert result["classes"] == summary["classes"]
    assert (result["name"], result["size"], result["protocol"]) == ("chelsea.jpg", summary["size"], "predicted-tags")
    values, lengths = np.array(result["mask"]["runs"]).reshape(-1, 2).T
    np.testing.assert_array_equal(np.repeat(values, lengths).reshape(expected.mask.shape), expected.mask)
    png = Image.open(io.BytesIO(base64.b64decode(result["mask"]["png"])))
    np.testing.assert_array_equal(np.asarray(png), expected.mask)
    assert result["seconds"].keys() == {"wait", "decode", "predict"}


def test_png_and_coco_are_the_same_mask(url: str, context: Context, photo: bytes, tmp_path: Path) -> None:
    expected = context.queue.run(lambda: context.model.predict(PHOTO, size=256)).mask
    for answer in (
        predict(url, photo, size="256", headers={"Accept": "image/png"}),
        predict(url, photo, size="256", query="?format=png"),
    ):
        assert answer.headers["content-type"] == "image/png"
        image = Image.open(io.BytesIO(answer.body))
        assert image.mode == "P"
        np.testing.assert_array_equal(np.asarray(image), expected)

    (tmp_path / "coco.json").write_bytes(predict(url, photo, size="256", query="?format=coco").body)
    coco = COCO(tmp_path / "coco.json")
    (annotation,) = coco.loadAnns(coco.getAnnIds())
    assert coco.loadCats(annotation["category_id"])[0]["name"] == "cat"
    np.testing.assert_array_equal(coco.annToMask(annotation), expected == 8)
    assert annotation["area"] == coco_masks.area(annotation["segmentation"]) == (expected == 8).sum()
    np.testing.assert_array_equal(annotation["bbox"], coco_masks.toBbox(annotation["segmentation"]))


def test_settings_change_the_mask(url: str, photo: bytes) -> None:
    plain = predict(url, photo, size="96").json()
    assert (plain["settings"]["size"], plain["crf"], plain["settings"]["flip"]) == (96, False, False)
    refined = predict(url, photo, size="96", crf="true", tta="true").json()
    assert (refined["crf"], refined["settings"]["flip"]) == (True, True)
    assert refined["mask"]["png"] != plain["mask"]["png"]


def test_known_tags_limit_the_mask(url: str, photo: bytes) -> None:
    tagged = predict(url, photo, size="96", tags=["dog", "person"]).json()
    assert tagged["protocol"] == "true-tags"
    assert {entry["name"] for entry in tagged["classes"]} <= {"dog", "person"}
    untagged = predict(url, photo, size="96", tags="").json()
    assert (untagged["protocol"], untagged["classes"]) == ("true-tags", [])


def test_an_image_that_browsers_do_not_show_comes_back_as_jpeg(url: str) -> None:
    photo = Image.open(PHOTO).resize((2000, 1330))
    answer = predict(url, to_file(photo, "TIFF"), file_name="chelsea.tif", size="96", view="true").json()
    view = Image.open(io.BytesIO(base64.b64decode(answer["view"])))
    assert (view.format, view.size, answer["size"]) == ("JPEG", (1600, 1064), {"width": 2000, "height": 1330})


def png_of_size(width: int, height: int) -> bytes:
    """A small file that claims to be a large image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(10**6))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><image href="file:///etc/passwd"/></svg>'
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file\nshowpage\n"


@pytest.mark.parametrize(
    ("image", "status", "message"),
    [
        (png_of_size(40_000, 40_000), 413, "has more than 50 megapixels"),
        (png_of_size(8000, 7000), 413, "has more than 50 megapixels"),
        (PHOTO.read_bytes()[:9000], 400, "is damaged"),
        (SVG, 400, "is not an image that can be read"),
        (EPS, 400, "is not an image that can be read"),
        (b"", 400, "is not an image that can be read"),
        (b"\x00" * 1000, 400, "is not an image that can be read"),
        (b"PK\x03\x04" + b"\x00" * 100, 400, "is not an image that can be read"),
    ],
    ids=["40000x40000", "56 megapixels", "truncated", "SVG", "EPS", "empty", "zeros", "zip"],
)
def test_hostile_images_are_refused(url: str, image: bytes, status: int, message: str) -> None:
    answer = predict(url, image, file_name="photo.jpg", content_type="image/jpeg")
    assert answer.status == status
    assert answer.json()["detail"].startswith(f"photo.jpg: {message}")
    assert request(url, "GET", "/health").json()["status"] == "ok"


@pytest.mark.parametrize(
    "file_name", ["../../etc/passwd", "/etc/passwd", "..\\..\\windows\\passwd", "a/../../passwd", "file:///etc/passwd"]
)
def test_paths_in_names_are_no_paths(url: str, photo: bytes, file_name: str) -> None:
    assert predict(url, photo, file_name=file_name, size="64").json()["name"] == "passwd"


def test_the_bytes_decide_what_a_file_is(url: str, photo: bytes) -> None:
    answer = predict(url, photo, file_name="evil.html", content_type="text/html", size="64")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_long_name_is_cut_and_control_characters_are_escaped(url: str, photo: bytes) -> None:
    name = predict(url, photo, file_name="\x1b[31m" + "a" * 300, size="64").json()["name"]
    assert name.startswith("\\x1b[31maaa")
    assert len(name) == 100


@pytest.mark.parametrize(
    ("form", "status", "message"),
    [
        ({"size": "huge"}, 400, "size: 'huge' is neither native nor a number of pixels up to 2048"),
        ({"size": "4000"}, 400, "size: '4000'"),
        ({"size": "5"}, 400, "size must be"),
        ({"tags": ["unicorn"]}, 400, "unknown tag 'unicorn'; known: aeroplane, bicycle"),
        ({"tta": "perhaps"}, 422, "tta: input should be a valid boolean"),
        ({"name": "../x"}, 422, "name: string should match"),
    ],
)
def test_wrong_settings_are_refused(url: str, photo: bytes, form: dict[str, Any], status: int, message: str) -> None:
    answer = predict(url, photo, **form)
    assert (answer.status, answer.json()["detail"][: len(message)]) == (status, message)


def test_requests_that_are_no_form_with_an_image_are_refused(url: str) -> None:
    def status(body: bytes, content_type: str) -> int:
        return request(url, "POST", "/predict", body, {"Content-Type": content_type}).status

    assert status(b"{}", "application/json") == 422
    assert status(b"", f"multipart/form-data; boundary={BOUNDARY}") == 422
    assert status(multipart(b"")[:60], f"multipart/form-data; boundary={BOUNDARY}") in (400, 422)
    assert status(multipart(b""), "multipart/form-data") == 400
    field = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'.encode()
    assert status(2000 * field, f"multipart/form-data; boundary={BOUNDARY}") == 400
    assert request(url, "GET", "/predict").status == 405
    assert request(url, "GET", "/health").json()["status"] == "ok"


def test_a_gigabyte_is_refused_before_it_is_read(url: str) -> None:
    """The rest is accepted and thrown away, so that a client that reads late gets the answer too."""
    head = (
        f"POST /predict HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Length: {2**30}\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=30) as client:
        client.sendall(head.encode())
        answer = b""
        while not answer.endswith(b"}"):
            answer += client.recv(2**16)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"reduce the image" in answer
        chunk = bytes(2**20)
        for _ in range(64):
            client.sendall(chunk)
    assert request(url, "GET", "/health").json()["status"] == "ok"


def test_requests_of_clients_that_left_are_taken_out_of_the_queue(url: str, context: Context, photo: bytes) -> None:
    body = multipart(photo)
    head = (
        f"POST /predict HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Length: {len(body)}\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
    ).encode()
    is_over = threading.Event()
    running = context.queue.submit(is_over.wait)
    clients = [socket.create_connection(("127.0.0.1", urlsplit(url).port or 0)) for _ in range(4)]
    for client in clients:
        client.sendall(head + body)
    wait_for(lambda: len(context.queue) == 5)
    for client in clients:
        client.close()
    wait_for(lambda: len(context.queue) == 1)
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0)) as client:
        client.sendall(head + body[: len(body) // 2])
    is_over.set()
    assert running.result()
    assert predict(url, photo, size="64").status == 200


def test_too_many_requests_are_told_to_come_back(url: str, context: Context, photo: bytes) -> None:
    is_over = threading.Event()
    jobs = [context.queue.submit(is_over.wait) for _ in range(1 + MAX_WAITING)]
    try:
        answer = predict(url, photo)
    finally:
        is_over.set()
    assert (answer.status, answer.headers["retry-after"]) == (503, "10")
    assert all(job.result(10) for job in jobs)
    assert predict(url, photo, size="64").status == 200


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("not within 30 seconds")


def test_health_and_description(url: str, context: Context) -> None:
    health = request(url, "GET", "/health").json()
    assert (health["model"], health["classes"]) == (context.model.description, list(context.model.classes))
    assert request(url, "GET", "/queue/nobody").json() == {"before": None}
    description = request(url, "GET", "/openapi.json").json()
    assert description["openapi"].startswith("3.")
    assert set(description["paths"]) == {"/predict", "/health", "/queue/{name}"}
    operation = description["paths"]["/predict"]["post"]
    assert {"application/json", "image/png"} <= operation["responses"]["200"]["content"].keys()
    (form,) = (schema for name, schema in description["components"]["schemas"].items() if name.startswith("Body"))
    assert {"image", "tta", "crf", "size", "tags", "view", "name"} == form["properties"].keys()
