"""The prediction pipeline: read ahead, batch by working shape, run, merge and refine, yield results in order.

`predict_many`, `evaluate` and the tuning of thresholds all consume `run_pipeline`.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tagseg._device import usable_cores
from tagseg.data.images import Pixels
from tagseg.errors import ConfigError, DataError
from tagseg.predict.engine import ClassRules, Engine, ImageResult, OnTile, PendingBatch
from tagseg.predict.resize import Shape, working_shape
from tagseg.predict.settings import InferenceSettings, WorkingSize

_NUM_THREADS = min(8, usable_cores())
_MAX_WAITING_BYTES = 2**28  # of finished outputs; those in progress come on top
_MAX_BATCHES_AHEAD = 128  # VOC's images have some hundred shapes, and a full batch costs little more than one image
_MAX_PIXELS_AHEAD = 2**27  # 400 MB of images, whatever the batch size

Item = TypeVar("Item")
Output = TypeVar("Output")
Key = TypeVar("Key")


def read_ahead(
    function: Callable[[Item], Output], items: Iterable[Item], *, size: Callable[[Output], int] = lambda _: 0
) -> Generator[Output, None, None]:
    """Apply a function in threads, a few items ahead of the consumer; outputs keep the order of the items.

    An error is raised in the position of its output, and an error of `items` after the outputs of earlier items.

    Args:
        function: Thread-safe function; it should release the GIL most of the time, as image codecs do.
        items: Consumed one by one in the caller's thread.
        size: Bytes of an output, which bound how many may wait.
    """
    pool = ThreadPoolExecutor(_NUM_THREADS)
    waiting: deque[Future[Output]] = deque()
    errors: list[Exception] = []
    try:
        for item in _until_error(items, errors):
            waiting.append(pool.submit(function, item))
            while len(waiting) > 2 * _NUM_THREADS or sum(_size(f, size) for f in waiting) > _MAX_WAITING_BYTES:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if errors:
            raise errors[0]
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Sample(Generic[Key]):
    """A decoded image on its way through the pipeline.

    Attributes:
        key: What the caller knows the image by.
        image: RGB, [H, W, 3]; reduced if the image itself is very large.
        rules: Rule of each protocol under which the image is segmented; none for class scores alone.
        keep_probs: Keep the merged masks; by default unless the image is tiled.
        own_shape: Height and width of the image itself, which its mask gets; None if `image` has them.
    """

    key: Key
    image: Pixels
    rules: ClassRules
    keep_probs: bool | None = None
    own_shape: Shape | None = None

    @property
    def shape(self) -> Shape:
        """Height and width of the image itself."""
        return self.own_shape or (self.image.shape[0], self.image.shape[1])


def read_samples(
    read: Callable[[Item], Sample[Key]], items: Iterable[Item], *, on_error: Callable[[DataError], object]
) -> Iterator[Sample[Key] | None]:
    """Read samples in threads as `read_ahead` does; an image that cannot be read does not end the stream.

    Args:
        read: Reads the sample of an item.
        items: What to read.
        on_error: Called in the order of the items with the error of one that cannot be read; it may raise another.

    Returns:
        The sample of each item, or None for one that cannot be read.
    """
    read_or_error: Callable[[Item], Sample[Key] | DataError] = partial(_read_or_error, read)
    for sample in read_ahead(read_or_error, items, size=_num_bytes):
        if isinstance(sample, DataError):
            on_error(sample)
            yield None
        else:
            yield sample


def _read_or_error(read: Callable[[Item], Sample[Key]], item: Item) -> Sample[Key] | DataError:
    try:
        return read(item)
    except DataError as error:
        return error  # raised here, it would end the stream


def _num_bytes(sample: Sample[Any] | DataError) -> int:
    return 0 if isinstance(sample, DataError) else sample.image.nbytes


class _Slot(Generic[Key]):
    """Position of a sample in the order of the stream, with its result once there is one."""

    def __init__(self, sample: Sample[Key], size: WorkingSize) -> None:
        self.sample = sample
        self.shape = working_shape(sample.shape, size)
        self.num_pixels = sample.image.shape[0] * sample.image.shape[1]
        self.result: ImageResult | None = None


def run_pipeline(
    engine: Engine,
    samples: Iterable[Sample[Key]],
    settings: InferenceSettings,
    *,
    crf: bool = False,
    batch_size: int | None = None,
    confidence: bool = False,
    on_tile: OnTile | None = None,
) -> Iterator[tuple[Sample[Key], ImageResult]]:
    """Segment a stream of images; results keep the order of the samples.

    Images of one working shape run together. Neighbors often differ in shape, so the pipeline looks ahead by some
    batches. An error of `samples` is raised after the results of all samples before it.

    Args:
        engine: Network on a device.
        samples: Images, usually from `read_ahead`.
        settings: Working size, scales, flips and how they are merged.
        crf: Refine by a dense CRF.
        batch_size: Most images of one working shape that run together; by default what suits the device.
        confidence: Also compute the masks' confidence.
        on_tile: Called as the tiles of a tiled image are done, as in `Engine.submit`.
    """
    batch_size = engine.batch_size if batch_size is None else batch_size
    if batch_size < 1:
        raise ConfigError(f"batch_size must be 1 or more, got {batch_size}")
    batches = _ShapeBatches[Key](
        engine, settings, crf=crf, batch_size=batch_size, confidence=confidence, on_tile=on_tile
    )
    errors: list[Exception] = []
    for sample in _until_error(samples, errors):
        batches.add(sample)
        yield from batches.pop_finished()
    batches.finish_all()
    yield from batches.pop_finished()
    if errors:
        raise errors[0]


class _ShapeBatches(Generic[Key]):
    """Samples that wait for their batch, batches in flight on the device, and results that wait for their turn."""

    def __init__(
        self,
        engine: Engine,
        settings: InferenceSettings,
        *,
        crf: bool,
        batch_size: int,
        confidence: bool,
        on_tile: OnTile | None,
    ) -> None:
        self._engine, self._settings, self._batch_size = engine, settings, batch_size
        self._crf, self._confidence, self._on_tile = crf, confidence, on_tile
        self._slots: deque[_Slot[Key]] = deque()  # in the order of the stream
        self._num_pixels = 0  # of all slots
        self._waiting: dict[Shape, list[_Slot[Key]]] = defaultdict(list)  # by working shape, not yet submitted
        self._in_flight: deque[tuple[list[_Slot[Key]], PendingBatch]] = deque()

    def add(self, sample: Sample[Key]) -> None:
        """Add the next sample; submit a batch when it is full, or when too many samples wait for the first one."""
        slot = _Slot(sample, self._settings.size)
        self._slots.append(slot)
        self._num_pixels += slot.num_pixels
        self._waiting[slot.shape].append(slot)
        if len(self._waiting[slot.shape]) == min(self._batch_size, self._engine.max_batch(*slot.shape)):
            self._submit(slot.shape)
        first = self._slots[0]
        if len(self._slots) >= _MAX_BATCHES_AHEAD * self._batch_size or self._num_pixels > _MAX_PIXELS_AHEAD:
            if first in self._waiting.get(first.shape, ()):
                self._submit(first.shape)
            while first.result is None:
                self._finish_oldest()

    def pop_finished(self) -> Iterator[tuple[Sample[Key], ImageResult]]:
        """Pop the results at the head of the stream."""
        while self._slots and self._slots[0].result is not None:
            slot = self._slots.popleft()
            self._num_pixels -= slot.num_pixels
            assert slot.result is not None
            yield slot.sample, slot.result

    def finish_all(self) -> None:
        """Submit and finish all waiting samples."""
        for shape in list(self._waiting):
            self._submit(shape)
        while self._in_flight:
            self._finish_oldest()

    def _submit(self, shape: Shape) -> None:
        slots = self._waiting.pop(shape)
        num_in_flight = self._engine.num_in_flight
        if self._engine.runs_alone(*shape):
            num_in_flight = 0
            while self._in_flight:
                self._finish_oldest()
        keep_probs = [slot.sample.keep_probs for slot in slots]
        pending = self._engine.submit(
            [slot.sample.image for slot in slots],
            [slot.sample.shape for slot in slots],
            [slot.sample.rules for slot in slots],
            self._settings,
            crf=self._crf,
            keep_probs=True if any(keep_probs) else keep_probs[0],
            confidence=self._confidence,
            on_tile=self._on_tile,
        )
        self._in_flight.append((slots, pending))
        while len(self._in_flight) > num_in_flight:
            self._finish_oldest()

    def _finish_oldest(self) -> None:
        slots, pending = self._in_flight.popleft()
        for slot, result in zip(slots, pending.results(), strict=True):
            slot.result = result


def _until_error(items: Iterable[Item], errors: list[Exception]) -> Iterator[Item]:
    """Yield the items before the first error, which is appended to `errors` and raised by the caller later."""
    try:
        yield from items
    except Exception as error:
        errors.append(error)


def _size(future: Future[Output], size: Callable[[Output], int]) -> int:
    return size(future.result()) if future.done() and future.exception() is None else 0
