"""Write predictions to a folder: masks, overlays, confidence and predictions.json."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from tagseg._files import hold_folder, write_atomically, writing
from tagseg._progress import ProgressBar
from tagseg.errors import ConfigError, DataError
from tagseg.predict.engine import TRUE_TAGS
from tagseg.predict.folder import PlannedImage, PredictionFolder, index_file
from tagseg.predict.index import ImageRecord, RunRecord
from tagseg.predict.pipeline import read_ahead
from tagseg.predict.prediction import OutputFiles, Prediction
from tagseg.predict.predictor import PredictionStream
from tagseg.predict.sources import unused_name


def write_predictions(
    predictions: PredictionStream | Sequence[Prediction],
    out_dir: str | Path,
    *,
    files: OutputFiles | None = None,
    skip_existing: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Write each image's mask (NAME_mask.png), other files such as an overlay, and one predictions.json for all.

    Two images of one name become NAME and NAME-2. Images that a stream skipped are listed under `skipped`. After an
    error predictions.json lists what was written before it. A file that no predictions.json in the folder lists is
    never overwritten.

    Args:
        predictions: Predictions of one model with the same settings.
        out_dir: Created if it does not exist.
        files: Files to write for each image; by default masks and overlays.
        skip_existing: Keep the files of images that were predicted with the same settings, and do not predict these.
        overwrite: Replace files of earlier calls.
        progress: Show the progress on stderr.

    Returns:
        Path of predictions.json; a shard has its own, such as predictions-1-of-4.json.
    """
    files = files or OutputFiles()
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
        folder = PredictionFolder(
            Path(out_dir), run, files, shard=shard, skip_existing=skip_existing, overwrite=overwrite
        )
        count = folder.plan(planned, more=videos) + estimate
        writer = _Writer(Path(out_dir), folder, run, files)
        with ProgressBar("Predicting, image", count, quiet=not progress) as bar:
            if not count and not videos:  # a video of unknown length is opened below
                reason = "all images were predicted before" if planned else "this part has no images"
                bar.print(f"Nothing to do: {reason}")
            if isinstance(predictions, PredictionStream):
                stream = predictions.iterate(
                    is_needed=folder.start_image,
                    on_tile=lambda done, total: bar.note(f"tiled image {done / total:.0%}"),
                )
                named = ((prediction.name, prediction) for prediction in stream)
            else:
                named = (
                    (image.name, prediction)
                    for prediction, image in _with_plans(predictions)
                    if folder.start_image(image)
                )
            try:
                with closing(read_ahead(writer.write, named)) as written:
                    for number, _ in enumerate(written, start=1):
                        bar.text = ""
                        bar.update(number)
            except BaseException:  # what is written before an unreadable image or Ctrl-C is not lost
                folder.interrupt(skipped=skipped, left_out=left_out)
                raise
        return folder.finish(skipped=skipped, left_out=left_out)


class _Writer:
    """Writes the files of images, in threads."""

    def __init__(self, out: Path, folder: PredictionFolder, run: RunRecord, files: OutputFiles) -> None:
        self._out, self._folder, self._run, self._files = out, folder, run, files

    def write(self, named: tuple[str, Prediction]) -> None:
        """Write the files of one image."""
        name, prediction = named
        files = self._files.names(name)
        self._folder.begin_image(files)
        with writing(self._out):
            (self._out / name).parent.mkdir(parents=True, exist_ok=True)
        for kind, file in files.items():
            write_atomically(self._out / file, partial(self._files.save, kind, prediction))
        self._folder.add(ImageRecord.of(prediction, name, files, self._run))


def _with_plans(predictions: Sequence[Prediction]) -> Iterator[tuple[Prediction, PlannedImage]]:
    """Pair each prediction with its unused name, its path and its tags."""
    used: dict[str, int] = {}
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
