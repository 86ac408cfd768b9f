"""Clients that send requests to a server at the same time, and check that each gets its own answer."""

import io
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

import tagseg
from tests.app.requests import predict

_PHOTOS = sorted((Path(tagseg.__file__).parent / "photos").glob("*.jpg"))


@dataclass(frozen=True)
class Load:
    """What clients got.

    Attributes:
        num_answers: Number of answers, all of them right.
        seconds: From the first request to the last answer.
        slowest: Longest time that a client waited for an answer.
    """

    num_answers: int
    seconds: float
    slowest: float

    @property
    def throughput(self) -> float:
        """Answers a second."""
        return self.num_answers / self.seconds


def send_load(url: str, *, clients: int, seconds: float, size: str = "") -> Load:
    """Let clients send one request after another for some seconds, at least one each.

    Each client has an image of a size of its own. Its first answer, which it gets while no other client asks, has the
    values that all its later answers must have.
    """
    images = [_image(number) for number in range(clients)]
    expected = [_essence(_ask(url, number, image, size)) for number, image in enumerate(images)]
    assert len({str(answer) for answer in expected}) == clients

    start = time.perf_counter()

    def client(number: int) -> list[float]:
        durations: list[float] = []
        while not durations or time.perf_counter() - start < seconds:
            asked = time.perf_counter()
            answer = _ask(url, number, images[number], size)
            durations.append(time.perf_counter() - asked)
            assert _essence(answer) == expected[number], f"client {number} got another answer"
        return durations

    with ThreadPoolExecutor(clients) as pool:
        durations: Sequence[list[float]] = list(pool.map(client, range(clients)))
    elapsed = time.perf_counter() - start
    return Load(sum(map(len, durations)), elapsed, max(map(max, durations)))


def _image(number: int) -> bytes:
    photo = Image.open(_PHOTOS[number % len(_PHOTOS)])
    buffer = io.BytesIO()
    photo.resize((400 + number, round(400 * photo.height / photo.width))).save(buffer, "JPEG")
    return buffer.getvalue()


def _ask(url: str, number: int, image: bytes, size: str) -> Any:
    answer = predict(url, image, file_name=f"client-{number}.jpg", size=size)
    assert answer.status == 200, answer.body
    return answer.json()


def _essence(answer: Any) -> Any:
    return {name: answer[name] for name in ("name", "size", "classes", "mask")}
