"""`reproduce`: redo one of the paper's tables on this machine."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tagseg.errors import unknown_name
from tagseg.predict.settings import PAPER_THRESHOLD
from tagseg.reproduction.folder import open_voc
from tagseg.reproduction.images import COUNT, draw_masks
from tagseg.reproduction.markdown import table_markdown
from tagseg.reproduction.paper import TABLES
from tagseg.reproduction.steps import Step, steps_to, training

IMAGES = "images"
_SHOWN = "resnet50"  # the run whose masks are drawn


def reproductions() -> dict[str, str]:
    """What `reproduce` can redo, each with what it shows."""
    return {name: table.title for name, table in TABLES.items()} | {
        IMAGES: f"masks of {COUNT} val images, evenly spaced over their IDs: prediction, with CRF, ground truth"
    }


def reproduce(
    what: str,
    voc: str | Path,
    out: str | Path = "runs",
    *,
    changes: Sequence[str] = (),
    dry_run: bool = False,
    on_command: Callable[[str], None] = print,
) -> str:
    """Train and measure whatever a table of the paper needs; what is done already is left out.

    Args:
        what: a table such as `table-1`, or `images`; `reproductions` lists them.
        voc: VOCdevkit/VOC2012 with SBD beside it, or a folder with train_aug.csv, val.csv and their zips.
        out: the folder of the runs: one folder each, named like its recipe.
        changes: settings to change in every run, such as `model.pretrained=weights/{backbone}.safetensors`.
        dry_run: do nothing but name the commands.
        on_command: called with each command before it is run; one whose work is done comes as a comment.

    Returns:
        The table as Markdown, our figures beside the paper's, or where the images are; nothing of a dry run.
    """
    if what not in reproductions():
        raise unknown_name("table", what, reproductions())
    sources, out = open_voc(Path(voc).expanduser()), Path(out)
    steps: Iterable[Step] = [training(_SHOWN, sources, out, changes)]
    if what != IMAGES:
        steps = steps_to(TABLES[what].figures, sources, out, changes)
    for step in steps:
        done = step.done
        on_command(f"# done: {step.command}" if done else step.command)
        if not done and not dry_run:
            step.do()
    if dry_run:
        return ""
    if what == IMAGES:
        return f"images: {draw_masks(out / _SHOWN, sources.val, out / 'images.png', threshold=PAPER_THRESHOLD)}"
    return table_markdown(TABLES[what], out)
