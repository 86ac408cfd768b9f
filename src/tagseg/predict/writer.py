"""Write predictions to a folder: masks, overlays and predictions.json."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from tagseg._lock import hold_folder
from tagseg.errors import ConfigError, DataError, writing
from tagseg.models.serialization import write_atomically
from tagseg.predict.engine import TRUE_TAGS
from tagseg.predict.folder import PlannedImage, PredictionFolder, index_file, output_files
from tagseg.predict.index import ImageRecord, RunRecord
from tagseg.predict.pipeline import read_ahead
from tagseg.predict.prediction import Prediction
from tagseg.predict.predictor import PredictionStream
from tagseg.predict.progress import PredictionProgress
from tagseg.predict.sources import unused_name


def write_predictions(
    predictions: PredictionStream | Sequence[Prediction],
    out_dir: str | Path,
    *,
    skip_existing: bool = False,
    overwrite: bool = False,
    progress: PredictionProgress | None = None,
) -> Path:
    """Write each image's mask (NAME_mask.png) and overlay (NAME_overlay.jpg), and one predictions.json for all.

    Two images of one name become NAME and NAME-2. Images that a stream skipped are listed under `skipped`. After an
    error predictions.json lists what was written before it. A file that no predictions.json in the folder lists is
    never overwritten.

    Args:
        predictions: Predictions of one model with the same settings.
        out_dir: Created if it does not exist.
        skip_existing: Keep the files of images that were predicted with the same settings, and do not predict these.
        overwrite: Replace files of earlier calls.
        progress: Shows the progress.

    Returns:
        Path of predictions.json; a shard has its own, such as predictions-1-of-4.json.
    """
    progress = progress or PredictionProgress(quiet=True)
    if isinstance(predictions, PredictionStream):
        run, shard, left_out = predictions.run, predictions.shard, predictions.left_out
        skipped: Sequence[str] = predictions.skipped
        planned, videos = list(predictions.planned_images()), [video.path for video in predictions.videos]
        estimate = predictions.estimate_frames()
    elif predictions:
        run, shard, left_out, skipped, videos, estimate = RunRecord.of(predictions[0]), None, {}, [], [], 0
        planned = [image for _, image in _with_plans(predictions)]
    else:
        raise DataError("no predictions were given")
    with hold_folder(Path(out_dir), file=index_file(shard)):
        folder = PredictionFolder(Path(out_dir), run, shard=shard, skip_existing=skip_existing, overwrite=overwrite)
        progress.start(folder.plan(planned, more=videos) + estimate)
        if isinstance(predictions, PredictionStream):
            predictions.needs, predictions.on_tile = folder.needs, progress.tile
            named = ((prediction.name, prediction) for prediction in predictions)
        else:
            named = ((image.name, prediction) for prediction, image in _with_plans(predictions) if folder.needs(image))
        writer = _Writer(Path(out_dir), folder, run)
        try:
            with closing(read_ahead(writer.write, named)) as written:
                for number, _ in enumerate(written, start=1):
                    progress.advance(number)
        except BaseException:  # what is written before an unreadable image or Ctrl-C is not lost
            folder.interrupt(skipped=skipped, left_out=left_out)
            raise
        return folder.finish(skipped=skipped, left_out=left_out)


class _Writer:
    """Writes the files of images, in threads."""

    def __init__(self, out: Path, folder: PredictionFolder, run: RunRecord) -> None:
        self._out, self._folder, self._run = out, folder, run

    def write(self, named: tuple[str, Prediction]) -> None:
        """Write the files of one image."""
        name, prediction = named
        files = output_files(name)
        self._folder.begin_image(files)
        mask, overlay = self._out / files["mask"], self._out / files["overlay"]
        with writing(self._out):
            mask.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(mask, lambda part: prediction.mask_image().save(part, "PNG"))
        write_atomically(overlay, lambda part: prediction.overlay().save(part, "JPEG", quality=90))
        self._folder.add(ImageRecord.of(prediction, name, files, self._run))


def _with_plans(predictions: Sequence[Prediction]) -> Iterator[tuple[Prediction, PlannedImage]]:
    """Pair each prediction with its unused name, its path and its tags."""
    used: set[str] = set()
    first = RunRecord.of(predictions[0])
    for prediction in predictions:
        run = RunRecord.of(prediction)
        # The scales of an image are its own: those of very large ones are reduced for CAM.
        if run.model_copy(update={"settings": first.settings}) != first:
            raise ConfigError(
                f"{prediction.name}: was predicted with another model or other settings than {predictions[0].name}",
                "write them to different folders",
            )
        tags = prediction.allowed_classes if prediction.protocol == TRUE_TAGS else None
        yield prediction, PlannedImage(unused_name(prediction.name, used), prediction.path, tags)
