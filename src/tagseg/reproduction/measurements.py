"""What is measured of a run, and under which name its numbers lie in the run's folder: RUN/NAME.json."""

from dataclasses import dataclass
from pathlib import Path

from tagseg.evaluation import Evaluation
from tagseg.models.files import CHECKPOINT_FILE
from tagseg.predict.settings import PAPER_THRESHOLD, InferenceSettings


@dataclass(frozen=True)
class Measurement:
    """One way to measure a run.

    Attributes:
        images: `val`, or `train`: the images whose pseudo labels are measured.
        quality: the paper's scales and flips instead of single scale.
        crf: refine by the dense CRF.
        threshold: one threshold for all classes; None for those that suit the validation tags.
        last: the network after the last epoch, in place of the one with the lowest loss on validation.
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

_AGAIN = "remove it and run tagseg reproduce again"


def measurement_file(run: Path, name: str) -> Path:
    """Where a measurement of a run lies."""
    return run / f"{name}.json"


def measured_model(run: Path, name: str) -> Path:
    """What of a run is measured: its folder stands for the model that it chose."""
    return run / CHECKPOINT_FILE if MEASUREMENTS[name].last else run


def read_measurement(run: Path, name: str) -> Evaluation | None:
    """A measurement of a run, or None where it has not been made; one that is not what its name says is refused."""
    path, wanted = measurement_file(run, name), MEASUREMENTS[name]
    if not path.is_file():
        return None
    try:
        found = Evaluation.from_json(path.read_text())
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path}: is not an evaluation of this version; {_AGAIN}") from error
    paper = InferenceSettings().for_tta(wanted.tta)
    thresholds_from = "paper" if wanted.threshold is not None else "tags"
    last = found.model["name"] == Path(CHECKPOINT_FILE).stem
    has = (found.settings.scales, found.settings.flip, found.crf, found.settings.thresholds_from, last)
    if has != (paper.scales, paper.flip, wanted.crf, thresholds_from, wanted.last):
        scales = ", ".join(f"{scale:g}" for scale in found.settings.scales)
        raise ValueError(
            f"{path}: is not what its name says (scales {scales}, flips {_word(found.settings.flip)}, CRF "
            f"{_word(found.crf)}, thresholds from {found.settings.thresholds_from}, model "
            f"{found.model['name']}); {_AGAIN}"
        )
    return found


def _word(value: bool) -> str:
    return "on" if value else "off"
