"""The evaluations of a run: RUN/NAME.json for each name in `MEASUREMENTS`."""

from dataclasses import dataclass
from pathlib import Path

from tagseg._hub import CHECKPOINT_FILE
from tagseg.errors import DataError
from tagseg.evaluation import Evaluation
from tagseg.predict.settings import PAPER_THRESHOLD, InferenceSettings


@dataclass(frozen=True)
class Measurement:
    """Settings of an evaluation.

    Attributes:
        images: `val`, or `train` for the evaluation of pseudo labels.
        tta: Whether to use the paper's scales and flips instead of a single scale.
        crf: Whether to refine by the dense CRF.
        threshold: Threshold for all classes; None for the model's own, tuned on the validation labels.
        last: Whether to evaluate the last checkpoint in place of the run's model.
    """

    images: str
    tta: bool
    crf: bool
    threshold: float | None
    last: bool = False


MEASUREMENTS = {
    "single": Measurement("val", tta=False, crf=False, threshold=PAPER_THRESHOLD),
    "single-tags": Measurement("val", tta=False, crf=False, threshold=None),
    "tta": Measurement("val", tta=True, crf=False, threshold=PAPER_THRESHOLD),
    "tta-crf": Measurement("val", tta=True, crf=True, threshold=PAPER_THRESHOLD),
    "tta-tags": Measurement("val", tta=True, crf=False, threshold=None),
    "last": Measurement("val", tta=True, crf=False, threshold=PAPER_THRESHOLD, last=True),
    "last-crf": Measurement("val", tta=True, crf=True, threshold=PAPER_THRESHOLD, last=True),
    "pseudo": Measurement("train", tta=True, crf=False, threshold=PAPER_THRESHOLD),
    "pseudo-crf": Measurement("train", tta=True, crf=True, threshold=PAPER_THRESHOLD),
}


def measurement_file(run: Path, name: str) -> Path:
    """Return the file of a run's evaluation."""
    return run / f"{name}.json"


def measured_model(run: Path, name: str) -> Path:
    """Return the model that an evaluation is of: the run folder, or its last checkpoint."""
    return run / CHECKPOINT_FILE if MEASUREMENTS[name].last else run


def read_measurement(run: Path, name: str) -> Evaluation | None:
    """Read an evaluation of a run, and check that its settings are those of its name.

    Returns:
        The evaluation, or None where there is no such file.
    """
    path, measurement = measurement_file(run, name), MEASUREMENTS[name]
    if not path.is_file():
        return None
    advice = "remove the file and reproduce the table again"
    try:
        evaluation = Evaluation.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError) as error:
        raise DataError(f"{path}: is not an evaluation of this version", advice) from error
    settings = evaluation.settings
    expected = InferenceSettings() if measurement.tta else InferenceSettings().for_tta(False)
    thresholds_from = "paper" if measurement.threshold is not None else "tags"
    last = evaluation.model["name"] == Path(CHECKPOINT_FILE).stem
    if (settings.scales, settings.flip, evaluation.crf, settings.thresholds_from, last) != (
        expected.scales, expected.flip, measurement.crf, thresholds_from, measurement.last,
    ):  # fmt: skip
        scales = ", ".join(f"{scale:g}" for scale in settings.scales)
        raise DataError(
            f"{path}: its settings do not match its name (scales {scales}, flips {_on_off(settings.flip)}, CRF "
            f"{_on_off(evaluation.crf)}, thresholds from {settings.thresholds_from}, model {evaluation.model['name']})",
            advice,
        )
    return evaluation


def _on_off(value: bool) -> str:
    return "on" if value else "off"
