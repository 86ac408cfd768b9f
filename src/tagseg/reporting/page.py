"""`write_report`: a run as one HTML file that needs nothing else."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from tagseg.data.dataset import ImageTags
from tagseg.data.truth import PixelTruth
from tagseg.evaluation.evaluation import Evaluation
from tagseg.reporting.curves import curves
from tagseg.reporting.gallery import gallery
from tagseg.reporting.markup import Markup, element
from tagseg.reporting.overview import configuration, overview
from tagseg.reporting.run import Run, read_run
from tagseg.reporting.scores import read_evaluations, scores
from tagseg.reporting.tags import tags

REPORT_FILE = "report.html"


def write_report(
    run: str | Path,
    out: str | Path | None = None,
    *,
    pictures: ImageTags | None,
    truth: PixelTruth | None = None,
    evaluations: Sequence[Evaluation] = (),
    count: int = 8,
) -> Path:
    """Write what a run is, made and reached into one HTML file: no network, no scripts, nothing beside it.

    Parts that the run does not have yet are left out, with a sentence that says so.

    Args:
        run: the run's folder.
        out: the file to write; by default report.html in the run's folder.
        pictures: the validation pictures; None shows none.
        truth: their masks, shown beside the predictions.
        evaluations: further ones than the evaluation.json in the run's folder.
        count: how many pictures are shown.

    Returns:
        The path of the file.
    """
    if count < 1:
        raise ValueError(f"count must be 1 or more, got {count}; to show no pictures, pass pictures=None")
    found = read_run(Path(run))
    _check_classes(found, pictures, truth)
    path = found.folder / REPORT_FILE if out is None else Path(out)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file, for example {path / REPORT_FILE}")
    measured = read_evaluations(found, evaluations)
    shown = gallery(found, pictures, truth, count)
    sections = [
        *shown,
        curves(found),
        scores(measured),
        tags(pictures),
        configuration(found),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    header = overview(found, measured, refinement=len(shown) > 1)
    path.write_text(_page(found, header, sections), encoding="utf-8")
    return path


def _page(run: Run, header: Markup, sections: Sequence[Markup]) -> str:
    style = (resources.files("tagseg.reporting") / "style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{run.folder.resolve().name}: tagseg report"),
        element("style", Markup(style)),
    )
    return "<!doctype html>\n" + element("html", head, element("body", header, element("main", *sections)), lang="en")


def _check_classes(run: Run, pictures: ImageTags | None, truth: PixelTruth | None) -> None:
    """Refuse classes of another order or name, which would be mixed up."""
    for what, source in (("pictures", pictures), ("truth", truth)):
        if source is not None and tuple(source.classes) != run.classes:
            raise ValueError(
                f"the {what} have the classes {', '.join(source.classes)}, but the run has {', '.join(run.classes)}; "
                "open them with classes= those of the run, in its order"
            )
