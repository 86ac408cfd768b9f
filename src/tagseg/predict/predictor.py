"""`load` a model, then `predict`.

m = tagseg.load("runs/photos")
m.predict("dog.jpg").save("dog.png")
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tagseg.errors import unknown_name
from tagseg.models.files import CHECKPOINT_FILE, MODEL_FILE, load_model
from tagseg.models.network import Network
from tagseg.models.reference import load_reference_checkpoint
from tagseg.predict.engine import MAX_PIXELS, Engine
from tagseg.predict.prediction import Prediction
from tagseg.predict.segment import PREDICTED_TAGS, TRUE_TAGS, Choose
from tagseg.predict.settings import InferenceSettings, default_settings, read_settings
from tagseg.predict.sources import InMemory, as_sources
from tagseg.predict.stream import Decoded, PredictionStream

DEFAULT_MODEL = "default"
DEFAULT_FOLDER = Path(__file__).parents[1] / DEFAULT_MODEL  # in the package: the model, and a card about it

Images = str | Path | InMemory | Iterable[str | Path | InMemory]


def load(
    path: str | Path = DEFAULT_MODEL, *, device: str = "auto", precision: str = "auto", max_pixels: int = MAX_PIXELS
) -> "Predictor":
    """A model ready to predict.

    Args:
        path: a run's folder, a model's file, a run's `checkpoint.safetensors` for the network as it stands, a `.pth`
            file that the paper's authors' code trained, or `default`: the model that comes with tagseg, for VOC's 20
            classes (`./default` is a folder of that name).
        device: `auto` takes the first GPU if there is one.
        precision: `auto` computes in bfloat16, where that is safe, on devices that are faster in it; or `float32`,
            `bfloat16`.
        max_pixels: the most pixels that the network sees at once; larger images go through it in tiles.
    """
    file = DEFAULT_FOLDER if path == DEFAULT_MODEL else Path(path).expanduser()
    if not file.exists():
        raise ValueError(f"{path}: does not exist; name a run's folder, a model's file, or {DEFAULT_MODEL}")
    if file.is_dir():
        file = file / MODEL_FILE
        if not file.is_file():
            begun = file.with_name(CHECKPOINT_FILE)
            what = f"{begun} for the run as it stands" if begun.is_file() else "a run's folder, or a model's file"
            raise ValueError(f"{path}: this folder holds no {MODEL_FILE}; name {what}")
    if file.suffix == ".safetensors":
        network = load_model(file)
        settings = read_settings(file, network.config)
    else:
        network = load_reference_checkpoint(file, trained=True)
        settings = default_settings(network.config)
    return Predictor(
        network,
        settings,
        name=file.resolve().parent.name if file.name == MODEL_FILE else file.stem,
        device=device,
        precision=precision,
        max_pixels=max_pixels,
    )


class Predictor:
    """A network with the settings of its use.

    Attributes:
        classes: the names of the classes, without the background.
        engine: the network on its device.
        description: the model's name, method and backbone.

    Args:
        network: it is moved to the device.
        settings: the paper's by default.
        name: what the model is called in results.
        device: see `load`, as for what follows.
        precision: what the network computes in.
        max_pixels: the most pixels that the network sees at once.
    """

    def __init__(
        self,
        network: Network,
        settings: InferenceSettings | None = None,
        *,
        name: str = "model",
        device: str = "auto",
        precision: str = "auto",
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        config = network.config
        self.classes = config.class_names
        self.description = {"name": name, "method": config.method, "backbone": config.backbone}
        self.settings = settings or default_settings(config)
        self.engine = Engine(network, device=device, precision=precision, max_pixels=max_pixels)

    @property
    def settings(self) -> InferenceSettings:
        """Scales, thresholds and what they were chosen from; others may be assigned."""
        return self._settings

    @settings.setter
    def settings(self, settings: InferenceSettings) -> None:
        settings.threshold_list(len(self.classes))
        if settings.background is not None and self.description["method"] != "cam":
            raise ValueError("settings.background is for CAM, whose background is a constant; this network has its own")
        self._settings = settings

    def predict(
        self,
        image: str | Path | InMemory,
        *,
        tta: bool = False,
        crf: bool = False,
        tags: Sequence[str] | None = None,
        probabilities: bool | None = None,
    ) -> Prediction:
        """Segment one image.

        Args:
            image: a file, a PIL image, an array [H, W, 3] or a tensor [3, H, W] (uint8, or floating point in [0, 1]).
            quality: look at the settings' scales and flips, as the paper does, instead of once; slower by their number.
            crf: move the borders to the image's edges by a dense CRF.
            tags: the classes that the image is known to have; no other is allowed then, whatever its score.
            probabilities: keep the merged masks; by default where the image was not cut into tiles.
        """
        sources = as_sources([image])
        if len(sources) != 1:
            raise ValueError(f"{image}: holds {len(sources)} images; use predict_many for more than one")
        decoded = Decoded(sources[0].name, sources[0].read(), sources[0].path)
        return self._begin([decoded], self.allowed(tags), tta, crf, probabilities)()[0]

    def predict_many(
        self,
        images: Images,
        *,
        batch_size: int | None = None,
        tta: bool = False,
        crf: bool = False,
        probabilities: bool | None = None,
        skip_bad: bool = False,
    ) -> PredictionStream:
        """Segment many images, in their order, while the result is iterated over.

        Args:
            images: files, folders, patterns, zips, members of zips, PIL images, arrays or tensors, mixed as you like.
            batch_size: images of one shape that go through the network together; by default what suits the device.
            quality: see `predict`, as for `crf` and `probabilities`.
            crf: refine by a dense CRF.
            probabilities: keep the merged masks.
            skip_bad: leave out images that cannot be read and note why in the result's `bad`; otherwise they raise.
        """
        choose = self.allowed(None)
        return PredictionStream(
            as_sources(images),
            lambda images: self._begin(images, choose, tta, crf, probabilities),
            batch_size=self.engine.batch_size if batch_size is None else batch_size,
            in_flight=self.engine.in_flight,
            skip_bad=skip_bad,
        )

    def allowed(self, tags: Sequence[str] | None) -> Choose:
        """What decides which classes an image may have: its tags if they are given, otherwise its scores."""
        if tags is None:
            return lambda scores: {PREDICTED_TAGS: self.settings.kept_classes(scores)}
        tags = [tags] if isinstance(tags, str) else tags
        for tag in tags:
            if tag not in self.classes:
                raise unknown_name("tag", tag, self.classes)
        kept = tuple(k for k, name in enumerate(self.classes) if name in tags)
        return lambda _: {TRUE_TAGS: kept}

    def _begin(
        self, images: Sequence[Decoded], choose: Choose, tta: bool, crf: bool, probabilities: bool | None
    ) -> Callable[[], list[Prediction]]:
        height, width = images[0].pixels.shape[:2]
        settings = self.settings if tta else self.settings.single_scale
        settings = self.engine.fit_scales(settings, height * width)
        arrays = [image.pixels for image in images]
        found = self.engine.begin(arrays, [choose] * len(arrays), settings, crf=crf, keep_planes=probabilities)
        return lambda: [
            Prediction(
                name=image.name,
                path=image.path,
                mask=result.mask,
                scores=dict(zip(self.classes, scores, strict=True)),
                image=image.pixels,
                model=self.description,
                protocol=protocol,
                settings=settings,
                crf=crf,
                kept=result.kept,
                _planes=None if result.planes is None else result.planes.numpy(),
            )
            for image, (scores, results) in zip(images, found(), strict=True)
            for protocol, result in results.items()
        ]
