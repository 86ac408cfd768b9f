"""Validation images in the order in which they are worth looking at: by uncertainty, doubtful tags, or IoU."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from threading import Lock, Thread

import numpy as np

from tagseg.app.context import Context, QueueFullError
from tagseg.app.images import ShownImages
from tagseg.app.markup import overlay_cell
from tagseg.data.images import Pixels
from tagseg.data.masks import Mask
from tagseg.errors import DataError, TagsegError
from tagseg.evaluation.metrics import ConfusionMatrix, mean
from tagseg.predict.prediction import Prediction
from tagseg.predict.resize import resize_nearest
from tagseg.report.doubtful_tags import Doubt, rank_doubts
from tagseg.report.gallery import Cell
from tagseg.report.stages import evenly_spaced

MAX_EXAMINED = 5000  # images whose thumbnails fit into some 100 MB of memory
_THUMBNAIL_SIDE = 240
_SECONDS_TO_RETRY = 1.0


@dataclass(frozen=True)
class ExaminedImage:
    """Result of the model for an image.

    Attributes:
        index: Index of the image.
        image_id: Its ID.
        scores: Score of each class.
        predicted: Classes in its mask.
        uncertainty: Uncertainty of the mask.
        iou: Mean IoU of the image with its ground truth, over the classes of either; None without ground truth.
        cell: Thumbnail with the mask over it.
    """

    index: int
    image_id: str
    scores: tuple[float, ...]
    predicted: tuple[str, ...]
    uncertainty: float
    iou: float | None
    cell: Cell


class Ranking:
    """Runs the model on the images in a thread, one by one, so that others who wait for the model get their turn.

    Attributes:
        total: Number of images to examine.
        problem: Why the thread has stopped; empty if it did not, or has finished.
        unreadable: Why each image that could not be read was left out.

    Args:
        context: The model and its queue.
        images: Images to examine; evenly spaced ones if there are too many.
    """

    def __init__(self, context: Context, images: ShownImages) -> None:
        self._context, self._images = context, images
        self._waiting = evenly_spaced(images.data.image_ids, MAX_EXAMINED)
        self._examined: list[ExaminedImage] = []
        self._thread: Thread | None = None
        self._lock = Lock()
        self.total = len(self._waiting)
        self.problem = ""
        self.unreadable: list[str] = []

    @property
    def is_running(self) -> bool:
        """Whether images are being examined."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def examined(self) -> Sequence[ExaminedImage]:
        """Results so far."""
        return tuple(self._examined)

    def start(self) -> None:
        """Start or continue, unless it runs."""
        with self._lock:
            if not self.is_running and self._waiting:
                self.problem = ""
                self._thread = Thread(target=self._run, name="ranking", daemon=True)
                self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all images are examined."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while self._waiting:
            try:
                self._examine(self._waiting[0])
            except QueueFullError:
                time.sleep(_SECONDS_TO_RETRY)
                continue
            except DataError as error:
                self.unreadable.append(error.problem)
            except CancelledError:  # the server ends
                return
            except (TagsegError, RuntimeError) as error:  # such as a GPU without memory
                self.problem = str(error)
                return
            self._waiting.pop(0)

    def _examine(self, index: int) -> None:
        pixels = self._images.data.images.read(index)
        prediction = self._context.queue.run(lambda: self._context.model.predict(pixels, probabilities=False))
        ground_truth = self._images.ground_truth(index)
        self._examined.append(
            ExaminedImage(
                index=index,
                image_id=self._images.data.image_ids[index],
                scores=tuple(prediction.scores.values()),
                predicted=prediction.labels,
                uncertainty=prediction.uncertainty,
                iou=None if ground_truth is None else image_iou(prediction, ground_truth),
                cell=_thumbnail(pixels, prediction, self._images.data.image_ids[index]),
            )
        )


Order = Callable[[Sequence[ExaminedImage], Mapping[int, list[Doubt]]], list[ExaminedImage]]


def _by_uncertainty(examined: Sequence[ExaminedImage], _: Mapping[int, list[Doubt]]) -> list[ExaminedImage]:
    return sorted(examined, key=lambda image: -image.uncertainty)


def _by_doubts(examined: Sequence[ExaminedImage], doubts: Mapping[int, list[Doubt]]) -> list[ExaminedImage]:
    by_index = {image.index: image for image in examined}
    rest = [image for image in _by_uncertainty(examined, doubts) if image.index not in doubts]
    return [*(by_index[index] for index in doubts), *rest]


def _by_iou(examined: Sequence[ExaminedImage], _: Mapping[int, list[Doubt]]) -> list[ExaminedImage]:
    return sorted(examined, key=lambda image: 2.0 if image.iou is None else image.iou)


def _by_name(examined: Sequence[ExaminedImage], _: Mapping[int, list[Doubt]]) -> list[ExaminedImage]:
    return sorted(examined, key=lambda image: image.image_id)


UNCERTAINTY, DISAGREEMENT, IOU, NAME = "Most uncertain", "Tags against prediction", "Lowest IoU", "Name"
ORDERS: dict[str, Order] = {
    UNCERTAINTY: _by_uncertainty,
    DISAGREEMENT: _by_doubts,
    IOU: _by_iou,
    NAME: _by_name,
}


def orders(context: Context, images: ShownImages) -> list[str]:
    """Orders that these images can have: scores of a network that learned from masks are not compared with tags."""
    names = [UNCERTAINTY]
    if images.have_tags and context.model.description["method"] != "supervised":
        names.append(DISAGREEMENT)
    if images.masks is not None:
        names.append(IOU)
    return [*names, NAME]


def find_doubts(context: Context, images: ShownImages, examined: Sequence[ExaminedImage]) -> dict[int, list[Doubt]]:
    """Tags that the model contradicts, by the index of their image, in the order of the contradictions."""
    if not examined or DISAGREEMENT not in orders(context, images):
        return {}
    scores = np.array([image.scores for image in examined])
    labels = images.data.labels[[image.index for image in examined]].numpy() > 0.5
    thresholds = context.model.settings.thresholds_per_class(len(context.model.classes))
    ranked = rank_doubts(scores, labels, thresholds)
    return {examined[doubts[0].image].index: doubts for doubts in ranked}


def with_class(examined: Sequence[ExaminedImage], images: ShownImages, name: str) -> list[ExaminedImage]:
    """Images that are tagged with a class or have it in their mask."""
    return [image for image in examined if name in image.predicted or name in images.tags(image.index)]


def image_iou(prediction: Prediction, ground_truth: Mask) -> float:
    """Mean IoU of one image, over the classes of its prediction and its ground truth, background included."""
    matrix = ConfusionMatrix(1 + len(prediction.scores))
    matrix.update(resize_nearest(prediction.mask, ground_truth.shape), ground_truth)
    return mean(matrix.iou)


def _thumbnail(pixels: Pixels, prediction: Prediction, name: str) -> Cell:
    return overlay_cell(pixels, prediction.mask, list(prediction.scores), name, side=_THUMBNAIL_SIDE)
