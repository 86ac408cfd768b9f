"""Load a model and predict masks.

Usage:
    model = tagseg.load("runs/photos")              # or tagseg.load(): the model that comes with tagseg
    model.predict("dog.jpg").save("dog.png")        # a path, PIL image, array, tensor, bytes or file object
    model.predict(["dog.jpg", array])               # a list of them: a list of predictions
    for prediction in model.predict_many("photos/", tta=True, crf=True):
        print(prediction.name, prediction.labels)
    model.predict_many("photos/", tags="photos.csv")    # each mask limited to the image's tags
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import overload

from tagseg._hub import DEFAULT_MODEL, MODEL_FILE
from tagseg.data.files import expand_home
from tagseg.errors import ConfigError, DataError, WeightsError
from tagseg.models.base import Network, copy_network
from tagseg.models.reference import load_reference_checkpoint
from tagseg.models.serialization import find_model, fingerprint, load_model
from tagseg.predict.engine import MAX_PIXELS, PREDICTED_TAGS, TRUE_TAGS, ClassRules, Engine, ImageResult, OnTile
from tagseg.predict.folder import PlannedImage
from tagseg.predict.index import ModelRecord, RunRecord
from tagseg.predict.onnx_network import ONNX_SUFFIX, OnnxNetwork
from tagseg.predict.pipeline import Sample, read_samples, run_pipeline
from tagseg.predict.prediction import Prediction
from tagseg.predict.settings import FixedClasses, InferenceSettings, WorkingSize, default_settings, read_settings
from tagseg.predict.sources import ImageInput, ImageSource, Sources, find_sources, read_source
from tagseg.predict.tags import Tags, TagsInput, sort_tags, tags_of_images
from tagseg.predict.video import VideoSource


def load(
    path: str | Path = DEFAULT_MODEL,
    *,
    device: str = "auto",
    precision: str = "auto",
    max_pixels: int = MAX_PIXELS,
    optimize: bool | Collection[str] = True,
) -> "Predictor":
    """Load a model, ready to predict.

    Args:
        path: A run folder, a model file, a run's `checkpoint.safetensors` for the network as it stands, an `.onnx` file
            of `export_model`, a `.pth` file trained by the paper's authors' code, `organization/name` of a model on the
            Hugging Face hub, or `default`: the model that comes with tagseg, for VOC's 20 classes (`./default` is a
            folder of that name).
        device: A torch device by name; `auto` takes the first GPU if there is one.
        precision: `float32`, `bfloat16`, or `auto`: bfloat16 on devices that multiply it natively.
        max_pixels: Most pixels of one forward pass; images that are larger at the working size are tiled.
        optimize: Whether to use the fast paths of `tagseg.predict.optimize`; False runs the plain network.
    """
    file = find_model(path)
    network: Network
    if file.suffix == ".safetensors":
        network = load_model(file)
        settings = read_settings(file, network.config)
    elif file.suffix == ONNX_SUFFIX:
        network = OnnxNetwork(file)
        settings = network.settings
    elif file.suffix == ".pt2":
        raise WeightsError(
            f"{file}: torch.export.load, which reads this file, runs code in it, so tagseg does not",
            "export an .onnx file, or read it yourself if you trust it",
        )
    else:
        network = load_reference_checkpoint(file, trained=True)
        settings = default_settings(network.config)
    if not expand_home(path).exists() and path != DEFAULT_MODEL:
        name = str(path)  # on the hub
    else:
        name = file.resolve().parent.name if file.name == MODEL_FILE else file.stem
    return Predictor(
        network,
        settings,
        name=name,
        source=file,
        device=device,
        precision=precision,
        max_pixels=max_pixels,
        optimize=optimize,
    )


class Predictor:
    """A network with its inference settings.

    Attributes:
        classes: Class names, without the background.
        engine: The network on its device.
        description: Name, method and backbone of the model.
        source: File that the network was loaded from, if it was.
        requested_device: Device that was asked for, such as `auto`.

    Args:
        network: Moved to the device.
        settings: Inference settings; the paper's by default.
        name: Name of the model in results.
        source: File that the network was loaded from.
        device: Device, as in `load`.
        precision: Precision, as in `load`.
        max_pixels: Most pixels of one forward pass, as in `load`.
        optimize: Fast paths, as in `load`.
    """

    def __init__(
        self,
        network: Network,
        settings: InferenceSettings | None = None,
        *,
        name: str = "model",
        source: Path | None = None,
        device: str = "auto",
        precision: str = "auto",
        max_pixels: int = MAX_PIXELS,
        optimize: bool | Collection[str] = True,
    ) -> None:
        config = network.config
        self.classes = config.class_names
        self.description = {"name": name, "method": config.method, "backbone": config.backbone}
        self.source = source
        self.settings = settings or default_settings(config)
        self.requested_device = device
        self._copy = partial(
            Predictor,
            name=name,
            source=source,
            device=device,
            precision=precision,
            max_pixels=max_pixels,
            optimize=optimize,
        )
        self.engine = Engine(network, device=device, precision=precision, max_pixels=max_pixels, optimize=optimize)

    def __copy__(self) -> "Predictor":
        """Copy that shares the network and may have other settings."""
        copied = Predictor.__new__(Predictor)
        copied.__dict__.update(self.__dict__)
        return copied

    def __reduce__(self) -> tuple[Callable[..., "Predictor"], tuple[object, ...]]:
        """Pickle the network on the CPU: the copy chooses a device where it is loaded."""
        return self._copy, (copy_network(self.engine.network).cpu(), self.settings)

    def __repr__(self) -> str:
        name, method, backbone = self.description.values()
        return f"Predictor({name!r}: {method} on {backbone}, {len(self.classes)} classes, {self.engine.device})"

    @property
    def settings(self) -> InferenceSettings:
        """Working size, scales, thresholds and what they were chosen on; others may be assigned."""
        return self._settings

    @settings.setter
    def settings(self, settings: InferenceSettings) -> None:
        settings.thresholds_per_class(len(self.classes))
        settings.check_method(self.description["method"])
        self._settings = settings

    def save_pretrained(self, folder: str | Path, *, license: str | None = None) -> Path:
        """Write a folder for the Hugging Face hub: model.safetensors, config.json, and a model card, README.md.

        `load(folder)` reads it, and `load("organization/name")` where it is uploaded, as by `hf upload`. The card has
        the classes, and of a run also its recipe, its data and its evaluation.

        Args:
            folder: Folder to write; none of these files may exist in it.
            license: Identifier of the model's license, as the hub has them, such as `apache-2.0`.
        """
        from tagseg.export.model_card import write_pretrained  # which writes a card of a run, and so imports training

        return write_pretrained(self, Path(folder), license=license)

    def check_classes(self, kind: str, classes: Sequence[str]) -> None:
        """Raise a `DataError` unless a dataset has the model's classes in the model's order.

        Args:
            kind: What has the classes, for the message.
            classes: Class names of the dataset.
        """
        if tuple(classes) != self.classes:
            raise DataError(
                f"the {kind} have the classes {', '.join(classes)}, but the model has {', '.join(self.classes)}",
                "open them with the model's classes, in its order",
            )

    @overload
    def predict(
        self,
        image: ImageInput,
        *,
        tta: bool = False,
        crf: bool = False,
        size: WorkingSize | None = None,
        tags: Sequence[str] | None = None,
        probabilities: bool | None = None,
    ) -> Prediction: ...

    @overload
    def predict(
        self,
        image: list[ImageInput] | tuple[ImageInput, ...],
        *,
        tta: bool = False,
        crf: bool = False,
        size: WorkingSize | None = None,
        tags: Sequence[str] | None = None,
        probabilities: bool | None = None,
    ) -> list[Prediction]: ...

    def predict(
        self,
        image: ImageInput | list[ImageInput] | tuple[ImageInput, ...],
        *,
        tta: bool = False,
        crf: bool = False,
        size: WorkingSize | None = None,
        tags: Sequence[str] | None = None,
        probabilities: bool | None = None,
    ) -> Prediction | list[Prediction]:
        """Segment an image, or a list of images.

        Args:
            image: A path, PIL image, array [H, W, 3] or tensor [3, H, W] (uint8, or floating point in [0, 1]), the
                bytes of an image file, a file object, or a list of these.
            tta: Test-time augmentation: the settings' scales and flips, as in the paper; slower, by their number.
            crf: Refine the masks by a dense CRF.
            size: Longest side in pixels to which the image is resized for the network, or `native` for its own size,
                in tiles if it is large; by default the model's. The mask has the image's own size.
            tags: Classes that the image is known to have; no other is allowed then, whatever its score.
            probabilities: Keep the merged masks; by default unless the image is tiled.
        """
        is_list = isinstance(image, list | tuple)
        sources = find_sources(image if isinstance(image, list | tuple) else [image]).images
        if not is_list and len(sources) != 1:
            raise DataError(f"{image}: holds {len(sources)} images", "use predict_many for more than one")
        rules = self._rules(None if tags is None else sort_tags(tags, self.classes))
        settings = self.settings.with_size(size).for_tta(tta)
        samples = (
            Sample(source, pixels, rules, probabilities, shape)
            for source in sources
            if not isinstance(source, VideoSource)  # without `every` none is opened
            for pixels, shape in [read_source(source, settings.size)]
        )
        predictions = list(self._predict(samples, settings, crf=crf, batch_size=None))
        return predictions if is_list else predictions[0]

    def predict_many(
        self,
        images: ImageInput | Iterable[ImageInput],
        *,
        tags: TagsInput | None = None,
        every: float | None = None,
        shard: tuple[int, int] | None = None,
        batch_size: int | None = None,
        tta: bool = False,
        crf: bool = False,
        size: WorkingSize | None = None,
        probabilities: bool | None = None,
        skip_bad: bool = False,
    ) -> "PredictionStream":
        """Segment many images, in their order, while the result is iterated over.

        Args:
            images: Files, folders, glob patterns, zips, members of zips, URLs, `-` for standard input, videos, and
                images in memory as in `predict`.
            tags: Classes that each image is known to have, as in `predict`: a table as for training, a mapping from an
                image's path or name to its tags, or a list with the tags of each image. Every image needs some entry.
            every: Seconds between the frames that are taken of a video; needs `tagseg[video]`.
            shard: Segment the n-th part of the images only: (1, 4) to (4, 4) are four parts without a common image.
            batch_size: Images of one working shape that run together; by default what suits the device.
            tta: Test-time augmentation, as in `predict`.
            crf: Refine the masks by a dense CRF.
            size: Working size, as in `predict`.
            probabilities: Keep the merged masks, as in `predict`.
            skip_bad: Leave out images that cannot be read and list them in the result's `skipped`, instead of raising.
        """
        if shard is not None and not 1 <= shard[0] <= shard[1]:
            raise ConfigError(f"there is no shard {shard[0]} of {shard[1]}", "of four parts name 1 to 4")
        sources = find_sources(images, every=every)
        return PredictionStream(
            self,
            sources,
            None if tags is None else tags_of_images(tags, sources.images, self.classes),
            self.settings.with_size(size).for_tta(tta),
            shard=shard,
            batch_size=batch_size,
            crf=crf,
            probabilities=probabilities,
            skip_bad=skip_bad,
        )

    def _rules(self, tags: Tags | None) -> ClassRules:
        """Rule for the classes of an image: its tags if they are given, otherwise its scores."""
        if tags is None:
            return {PREDICTED_TAGS: self.settings.threshold_rule(len(self.classes))}
        return {TRUE_TAGS: FixedClasses(tuple(k for k, name in enumerate(self.classes) if name in tags))}

    def _predict(
        self,
        samples: Iterable[Sample[ImageSource]],
        settings: InferenceSettings,
        *,
        crf: bool,
        batch_size: int | None,
        on_tile: OnTile | None = None,
    ) -> Iterator[Prediction]:
        results = run_pipeline(
            self.engine, samples, settings, crf=crf, batch_size=batch_size, confidence=True, on_tile=on_tile
        )
        for sample, result in results:
            yield self._prediction(sample, result, crf)

    def _prediction(self, sample: Sample[ImageSource], result: ImageResult, crf: bool) -> Prediction:
        ((protocol, segmentation),) = result.segmentations.items()
        assert segmentation.confidence is not None
        return Prediction(
            name=sample.key.name,
            path=sample.key.path,
            mask=segmentation.mask,
            scores=dict(zip(self.classes, result.scores, strict=True)),
            image=sample.image,
            model=self.description,
            protocol=protocol,
            settings=result.settings,
            crf=crf,
            class_indices=segmentation.classes,
            _probs=segmentation.probs,
            _confidence=segmentation.confidence,
        )


class PredictionStream(Iterable[Prediction]):
    """Predictions in the order of the images; only a few exist at a time.

    Attributes:
        skipped: Why each image that could not be read was left out, one line each; complete once the stream has ended.
        left_out: Files that look like images but are not read, by what to do about them.
        shard: Number of this part, from 1, and the number of parts; None for all images.
        requested_device: Device that the predictor was asked for.
    """

    def __init__(
        self,
        predictor: Predictor,
        sources: Sources,
        tags: Sequence[Tags] | None,
        settings: InferenceSettings,
        *,
        shard: tuple[int, int] | None,
        batch_size: int | None,
        crf: bool,
        probabilities: bool | None,
        skip_bad: bool,
    ) -> None:
        self.skipped: list[str] = []
        self.left_out: Mapping[str, list[str]] = sources.left_out
        self.shard = shard
        self.requested_device = predictor.requested_device
        self._predictor, self._sources, self._tags, self._settings = predictor, sources.images, tags, settings
        self._batch_size, self._crf = batch_size, crf
        self._probabilities, self._skip_bad = probabilities, skip_bad

    def __len__(self) -> int:
        """Number of images; for videos an estimate."""
        return sum(1 for _ in self.planned_images()) + self.estimate_frames()

    def __iter__(self) -> Iterator[Prediction]:
        return self.iterate()

    def iterate(
        self, *, is_needed: Callable[[PlannedImage], bool] | None = None, on_tile: OnTile | None = None
    ) -> Iterator[Prediction]:
        """Iterate over the predictions of some of the images.

        Args:
            is_needed: Decides whether an image is predicted, called in the order of the images; by default all are.
            on_tile: Called as the tiles of a tiled image are done, with the number that is done and of all.
        """
        self.skipped.clear()
        return self._predictor._predict(
            self._samples(is_needed),
            self._settings,
            crf=self._crf,
            batch_size=self._batch_size,
            on_tile=on_tile,
        )

    @property
    def run(self) -> RunRecord:
        """The model and the settings of all predictions, for predictions.json."""
        predictor = self._predictor
        return RunRecord(
            model=ModelRecord(**predictor.description, weights=fingerprint(predictor.engine.network)),
            classes=predictor.classes,
            settings=self._settings,
            protocol="predicted-tags" if self._tags is None else "true-tags",
            crf=self._crf,
        )

    @property
    def videos(self) -> list[VideoSource]:
        """The videos among the images."""
        return [source for source in self._sources if isinstance(source, VideoSource)]

    def images(self) -> Iterator[tuple[ImageSource, Tags | None]]:
        """Images of this shard with their tags, without the frames of videos."""
        for index, source in enumerate(self._sources):
            if not isinstance(source, VideoSource) and self._is_in_shard(index):
                yield source, None if self._tags is None else self._tags[index]

    def select(self, images: Sequence[tuple[ImageSource, Tags | None]]) -> "PredictionStream":
        """Stream of these images, some of those that `images` yields, with the same settings."""
        tags = [image_tags for _, image_tags in images if image_tags is not None]
        return PredictionStream(
            self._predictor,
            Sources([source for source, _ in images]),
            None if self._tags is None else tags,
            self._settings,
            shard=None,
            batch_size=self._batch_size,
            crf=self._crf,
            probabilities=self._probabilities,
            skip_bad=self._skip_bad,
        )

    def planned_images(self) -> Iterator[PlannedImage]:
        """What `images` yields, without the sources."""
        return (PlannedImage(source.name, source.path, tags) for source, tags in self.images())

    def estimate_frames(self) -> int:
        """Number of the videos' frames in this shard, by the videos' own account."""
        return sum(ceil(video.estimate_count() / (self.shard or (1, 1))[1]) for video in self.videos)

    def _is_in_shard(self, position: int) -> bool:
        return self.shard is None or position % self.shard[1] == self.shard[0] - 1

    def _samples(self, is_needed: Callable[[PlannedImage], bool] | None) -> Iterator[Sample[ImageSource]]:
        return filter(None, read_samples(self._read, self._images_to_predict(is_needed), on_error=self._skip))

    def _read(self, tagged: tuple[ImageSource, Tags | None]) -> Sample[ImageSource]:
        source, tags = tagged
        pixels, shape = read_source(source, self._settings.size)
        return Sample(source, pixels, self._predictor._rules(tags), self._probabilities, shape)

    def _skip(self, error: DataError) -> None:
        if not self._skip_bad:
            raise DataError(error.problem, f"{error.advice}, or skip such images by {{skip_bad}}")
        self.skipped.append(str(error))

    def _images_to_predict(
        self, is_needed: Callable[[PlannedImage], bool] | None
    ) -> Iterator[tuple[ImageSource, Tags | None]]:
        """Images of this shard and frames of its videos, without those that are not needed."""
        for index, source in enumerate(self._sources):
            tags = None if self._tags is None else self._tags[index]
            for number, image in enumerate(self._frames(source) if isinstance(source, VideoSource) else [source]):
                if self._is_in_shard(index + number) and (
                    is_needed is None or is_needed(PlannedImage(image.name, image.path, tags))
                ):
                    yield image, tags

    def _frames(self, video: VideoSource) -> Iterator[ImageSource]:
        try:
            yield from video.frames()
        except DataError as error:
            if not self._skip_bad:
                raise DataError(error.problem, f"{error.advice}, or skip such videos by {{skip_bad}}") from error
            self.skipped.append(str(error))
