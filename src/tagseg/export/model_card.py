"""A model as a folder for the Hugging Face hub: model.safetensors, config.json and a model card made from its run."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tagseg._files import make_folder, write_text
from tagseg._hub import MODEL_FILE
from tagseg._markdown import markdown_table
from tagseg._version import __version__
from tagseg.errors import ConfigError, TagsegError
from tagseg.evaluation.metrics import mean
from tagseg.evaluation.result import EVALUATION_FILE, Evaluation
from tagseg.models.serialization import DEFAULT_FOLDER, save_model
from tagseg.predict.onnx_network import OnnxNetwork
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import NOTE, THRESHOLD_ORIGINS
from tagseg.training.run_folder import CONFIG_FILE, read_config

CARD_FILE = "README.md"
_FILES = (MODEL_FILE, CONFIG_FILE, CARD_FILE)
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_METHODS = {
    "single-stage": "single-stage segmentation from image tags",
    "cam": "class activation maps from image tags",
    "supervised": "supervised segmentation from masks",
}
# Settings of a recipe that a reader of a card asks for first; config.json of the run has all.
_SHOWN_SETTINGS = ("training.epochs", "training.batch_size", "training.lr", "transforms.crop", "training.seed")


def write_pretrained(predictor: Predictor, folder: Path, *, license: str | None) -> Path:
    """Write the folder of `Predictor.save_pretrained`.

    Args:
        predictor: The model; of one that was loaded from a run, the card tells about the run.
        folder: Folder to write.
        license: Identifier of the model's license.

    Returns:
        The folder.
    """
    if isinstance(predictor.engine.network, OnnxNetwork):
        raise ConfigError("an ONNX file has no weights to save", "name the model it was exported from")
    if license is not None and not _LICENSE.fullmatch(license):
        raise ConfigError(f"license {license!r} is not an identifier of the hub", "write for example apache-2.0")
    for name in _FILES:
        if (folder / name).exists():
            raise ConfigError(f"{folder / name}: exists", "choose another folder")
    make_folder(folder)
    network = predictor.engine.network
    save_model(network, folder / MODEL_FILE, notes={NOTE: predictor.settings.to_json()})
    config = {
        "library_name": "tagseg",
        "tagseg_version": __version__,
        "model": json.loads(network.config.to_json()),
        "inference": json.loads(predictor.settings.to_json()),
    }
    # What model.safetensors says of itself, for those who read the repository; tagseg reads the weights' file alone.
    write_text(folder / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
    write_text(folder / CARD_FILE, model_card(predictor, license=license))
    return folder


def model_card(predictor: Predictor, *, license: str | None) -> str:
    """Model card in Markdown, with the hub's metadata.

    Args:
        predictor: The model.
        license: Identifier of its license.
    """
    description, classes = predictor.description, predictor.classes
    parts = [
        f"---\nlibrary_name: tagseg\npipeline_tag: image-segmentation\nlicense: {license or 'unknown'}\n"
        f"tags:\n- semantic-segmentation\n- weakly-supervised\n- tagseg\n---",
        f"# {_inline(description['name'].rpartition('/')[2])}",
        f"A model of tagseg {__version__} for semantic segmentation: {_METHODS[description['method']]}, with the "
        f"backbone {description['backbone']}.",
        "```python\nimport tagseg\n\n"
        'model = tagseg.load("ORGANIZATION/NAME")        # of this repository, or the path of its folder\n'
        'model.predict("photo.jpg").save("mask.png")\n```',
        f"## Classes\n{len(classes)}, and the background: {', '.join(map(_inline, classes))}.",
        "## Inference\n" + markdown_table(("setting", "value"), list(_inference(predictor))),
    ]
    run = _run_folder(predictor)
    if run is not None and (training := _training(run)) is not None:
        parts.append(training)
    if run is not None and (run / EVALUATION_FILE).is_file():
        parts.append(_evaluation(run / EVALUATION_FILE))
    parts.append(
        "## License\n"
        + (
            f"The weights have the license {license}."
            if license
            else "Not stated yet: what the weights may be used for depends on the images and on the weights that the "
            "training started from. State it in the first lines of this file."
        )
    )
    return "\n\n".join(parts) + "\n"


def _run_folder(predictor: Predictor) -> Path | None:
    """Folder of the run that the model was loaded from."""
    source = predictor.source
    if source is None or source.name != MODEL_FILE or source.parent == DEFAULT_FOLDER:
        return None
    return source.parent


def _inference(predictor: Predictor) -> Iterator[tuple[str, str]]:
    settings = predictor.settings
    yield "working size (longest side)", str(settings.size)
    yield "thresholds of the classes' scores", settings.describe_thresholds(len(predictor.classes))
    yield "thresholds are", THRESHOLD_ORIGINS[settings.thresholds_from]
    yield "scales of TTA", settings.describe_scales()


def _training(run: Path) -> str | None:
    """Recipe and data of a run; None for a folder of the hub, whose config.json is another."""
    try:
        config = read_config(run)
    except ConfigError:
        return None
    recipe, data = config["recipe"], config["data"]
    pretrained = recipe.get("model", {}).get("pretrained")
    start = {True: "ImageNet weights", False: "random weights"}.get(pretrained, Path(str(pretrained)).name)
    rows = [("starts from", _inline(str(start)))]
    for part, title in (("train", "training images"), ("validation", "validation images")):
        count = (data.get(part) or {}).get("image_count")
        if isinstance(count, int):
            rows.append((title, f"{count:,}"))
    for name in _SHOWN_SETTINGS:
        section, _, field = name.partition(".")
        if field in recipe.get(section, {}):
            rows.append((name, str(recipe[section][field])))
    return "## Training\n" + markdown_table(("recipe and data", ""), rows)


def _evaluation(path: Path) -> str:
    try:
        result = Evaluation.from_json(path.read_text(encoding="utf-8"))
    except (TagsegError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: is not an evaluation of tagseg", "delete it, or evaluate again") from error
    protocols = list(result.confusion)
    rows = [
        (_inline(name), *(_percent(result.confusion[protocol].iou[index]) for protocol in protocols))
        for index, name in enumerate(("background", *result.class_names))
    ]
    rows.append(("mean", *(_percent(mean(result.confusion[protocol].iou)) for protocol in protocols)))
    note = (
        f"IoU in percent on {result.images:,} images; scales {result.settings.describe_scales()}; "
        f"CRF {'on' if result.crf else 'off'}. With predicted tags the model's scores decide which classes an image "
        "may have, with true tags its tags do."
    )
    table = markdown_table(("class", *(protocol.replace("-", " ") for protocol in protocols)), rows)
    return "\n\n".join(["## Evaluation\n" + table, note, *([result.caveat] if result.caveat else [])])


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f}"


def _inline(text: str) -> str:
    """Text of the user, such as a class name, without what Markdown gives a meaning."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", text)
