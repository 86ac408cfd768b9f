"""Batches of equal shape out of a mixed stream, with the results in the stream's order."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from tagseg.data.images import Pixels
from tagseg.predict.ahead import until_error

_AHEAD = 128  # batches; VOC's images have some hundred shapes, and a full batch costs little more than one image
_MOST_PIXELS = 2**27  # how much of the stream is held at once, whatever the batch size: 400 MB


class HasPixels(Protocol):
    """Anything that carries a decoded image."""

    @property
    def pixels(self) -> Pixels:
        """RGB, [H, W, 3]."""


Item = TypeVar("Item", bound=HasPixels)
Result = TypeVar("Result")


class _Held(Generic[Item, Result]):
    """An image of the stream that has not been handed out."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.shape: Hashable = item.pixels.shape
        self.pixels = item.pixels.shape[0] * item.pixels.shape[1]
        self.results: list[Result] = []  # its result, once there is one


def in_batches(
    items: Iterable[Item],
    begin: Callable[[list[Item]], Callable[[], list[Result]]],
    *,
    batch_size: int,
    in_flight: int = 0,
) -> Iterator[Result]:
    """Run images of one shape together. Looks ahead by some batches, since neighbours often differ in shape.

    An error of the stream is raised after the results of all that came before it.

    Args:
        items: the stream.
        begin: starts with a list of items of one shape; what it returns gives a result for each.
        batch_size: how many at most.
        in_flight: how many batches may be begun before one is finished.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, got {batch_size}")
    held: deque[_Held[Item, Result]] = deque()
    pixels = 0  # of all that is held
    groups: dict[Hashable, list[_Held[Item, Result]]] = defaultdict(list)
    begun: deque[tuple[list[_Held[Item, Result]], Callable[[], list[Result]]]] = deque()

    def finish() -> None:
        group, results = begun.popleft()
        for one, result in zip(group, results(), strict=True):
            one.results.append(result)

    def start(shape: Hashable) -> None:
        group = groups.pop(shape)
        begun.append((group, begin([one.item for one in group])))
        if len(begun) > in_flight:
            finish()

    errors: list[Exception] = []
    for item in until_error(items, errors):
        last: _Held[Item, Result] = _Held(item)
        held.append(last)
        pixels += last.pixels
        groups[last.shape].append(last)
        if len(groups[last.shape]) == batch_size:
            start(last.shape)
        full = len(held) >= _AHEAD * batch_size or pixels > _MOST_PIXELS
        if full and held[0] in groups.get(held[0].shape, ()):
            start(held[0].shape)
        while full and not held[0].results:
            finish()
        while held and held[0].results:
            done = held.popleft()
            pixels -= done.pixels
            yield done.results[0]
    for shape in list(groups):
        start(shape)
    while begun:
        finish()
    for one in held:
        yield one.results[0]
    if errors:
        raise errors[0]
