"""What runs wrote into their journals after each epoch that was validated."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tagseg.api import MOST_MEASURED
from tagseg.predict.engine import PREDICTED_TAGS, TRUE_TAGS
from tagseg.reproduction.markdown import MISSING, as_markdown, wrapped
from tagseg.training.journal import read_journal
from tagseg.training.recipe import Recipe
from tagseg.training.run_folder import read_config

_MASKS = tuple(f"mIoU {protocol}" for protocol in (PREDICTED_TAGS, TRUE_TAGS))
_MOST_SHOWN = 6  # epochs of a run; of more, every fifth and the last
_HEADINGS = ("run", "epochs", "validation loss", *_MASKS)


def epochs_markdown(results: Path, runs: Iterable[str]) -> str:
    """How loss and masks went over the epochs of each run.

    Args:
        results: the folder of the runs' folders.
        runs: the runs, in the table's order.
    """
    rows, candidates = [], []
    for run in runs:
        journal = read_journal(results / run)
        tried = [line for line in journal if line["kind"] == "validation"]
        shown = [line for line in tried if len(tried) <= _MOST_SHOWN or line["epoch"] % 5 == 0 or line is tried[-1]]
        rows.append(
            [
                run,
                ", ".join(str(line["epoch"]) for line in shown) or MISSING,
                ", ".join(f"{line['loss']:.3f}" for line in shown) or MISSING,
                *(", ".join(f"{line[name]:.1f}" for line in shown) or MISSING for name in _MASKS),
            ]
        )
        if tried and (lines := that_may_be_kept(journal, Recipe.parse(read_config(results / run)["recipe"]))):
            candidates.append(lines)
    best = [sum(max(lines, key=lambda line: line[name]) is lines[-1] for lines in candidates) for name in _MASKS]
    lowest = sum(min(lines, key=lambda line: line["loss"]) is lines[-1] for lines in candidates)
    note = (
        f"Masks: the first {MOST_MEASURED} val images, single scale, no CRF. Of a run that was validated after "
        f"every epoch, each fifth is shown, and all are counted. Of {len(candidates)} runs the last of the "
        f"epochs that may be kept has the best masks in {best[0]} under predicted tags and in {best[1]} under true "
        f"tags, and the lowest loss in {lowest}."
    )
    return f"{as_markdown(_HEADINGS, rows)}\n\n{wrapped(note)}"


def that_may_be_kept(journal: list[dict[str, Any]], recipe: Recipe) -> list[dict[str, Any]]:
    """The validations of epochs that train the masks; CAM's all do."""
    after = 0 if recipe.model.method == "cam" else recipe.training.classification_epochs
    return [line for line in journal if line["kind"] == "validation" and line["epoch"] > after]
