"""Predictions of many images, made while they are asked for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tagseg.data.images import Pixels
from tagseg.errors import DataError
from tagseg.predict.ahead import map_ahead
from tagseg.predict.batches import in_batches
from tagseg.predict.prediction import Prediction
from tagseg.predict.sources import ImageSource


@dataclass(frozen=True)
class Decoded:
    """An image in memory with its name, and the path of its file if it has one."""

    name: str
    pixels: Pixels
    path: str | None = None


class PredictionStream(Iterable[Prediction]):
    """Predictions in the images' order; only a few exist at a time.

    Attributes:
        bad: why each image that could not be read was left out, one line each; complete once the stream has ended.

    Args:
        sources: the images.
        begin: starts to predict images of one shape; what it returns gives the predictions.
        batch_size: how many at a time.
        in_flight: how many batches may be begun before one is finished.
        skip_bad: leave out images that cannot be read.
    """

    def __init__(
        self,
        sources: Sequence[ImageSource],
        begin: Callable[[list[Decoded]], Callable[[], list[Prediction]]],
        *,
        batch_size: int,
        in_flight: int,
        skip_bad: bool,
    ) -> None:
        self.bad: list[str] = []
        self._sources = sources
        self._begin = begin
        self._batch_size = batch_size
        self._in_flight = in_flight
        self._skip_bad = skip_bad

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[Prediction]:
        self.bad.clear()
        return in_batches(self._decode(), self._begin, batch_size=self._batch_size, in_flight=self._in_flight)

    def _decode(self) -> Iterator[Decoded]:
        for read in map_ahead(_read, self._sources, size=_bytes):
            if isinstance(read, Decoded):
                yield read
            elif self._skip_bad:
                self.bad.append(str(read))
            else:
                raise DataError(f"{read}; or go on without such images by skip_bad=True")


def _read(source: ImageSource) -> Decoded | DataError:
    try:
        return Decoded(source.name, source.read(), source.path)
    except DataError as error:
        return error  # raised, it would end the stream even where bad images are left out


def _bytes(read: Decoded | DataError) -> int:
    return read.pixels.nbytes if isinstance(read, Decoded) else 0
