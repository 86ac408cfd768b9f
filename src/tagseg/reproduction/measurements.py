"""What is measured of a run, and under which name its numbers lie in the run's folder: RUN/NAME.json."""

from dataclasses import dataclass
from pathlib import Path

from tagseg.evaluation import Evaluation
from tagseg.inference.settings import PAPER_CUTOFF, InferenceSettings
from tagseg.models.files import CHECKPOINT_FILE


@dataclass(frozen=True)
class Measurement:
    """One way to measure a run.

    Attributes:
        pictures: `val`, or `train`: the pictures whose pseudo labels are measured.
        quality: the paper's scales and flips instead of one look.
        crf: refine by the dense CRF.
        cutoff: one cut-off for all classes; None for those that suit the validation tags.
        last: the network after the last epoch, in place of the one with the lowest loss on validation.
    """

    pictures: str
    quality: bool
    crf: bool
    cutoff: float | None
    last: bool = False


MEASUREMENTS = {
    "single": Measurement("val", quality=False, crf=False, cutoff=PAPER_CUTOFF),
    "single-tags": Measurement("val", quality=False, crf=False, cutoff=None),
    "quality": Measurement("val", quality=True, crf=False, cutoff=PAPER_CUTOFF),
    "quality-crf": Measurement("val", quality=True, crf=True, cutoff=PAPER_CUTOFF),
    "quality-tags": Measurement("val", quality=True, crf=False, cutoff=None),
    "last": Measurement("val", quality=True, crf=False, cutoff=PAPER_CUTOFF, last=True),
    "last-crf": Measurement("val", quality=True, crf=True, cutoff=PAPER_CUTOFF, last=True),
    "pseudo": Measurement("train", quality=True, crf=False, cutoff=PAPER_CUTOFF),
    "pseudo-crf": Measurement("train", quality=True, crf=True, cutoff=PAPER_CUTOFF),
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
    paper = InferenceSettings() if wanted.quality else InferenceSettings().quick
    chosen_from = "paper" if wanted.cutoff is not None else "tags"
    last = found.model["name"] == Path(CHECKPOINT_FILE).stem
    has = (found.settings.scales, found.settings.flip, found.crf, found.settings.chosen_from, last)
    if has != (paper.scales, paper.flip, wanted.crf, chosen_from, wanted.last):
        scales = ", ".join(f"{scale:g}" for scale in found.settings.scales)
        raise ValueError(
            f"{path}: is not what its name says (scales {scales}, flips {_word(found.settings.flip)}, CRF "
            f"{_word(found.crf)}, cut-offs from {found.settings.chosen_from}, model {found.model['name']}); {_AGAIN}"
        )
    return found


def _word(value: bool) -> str:
    return "on" if value else "off"
