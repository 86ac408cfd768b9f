"""`write_page`: a run as one HTML file that needs nothing else."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from tagseg.data.dataset import ImageDataset
from tagseg.data.masks import MaskDataset
from tagseg.evaluation.evaluation import Evaluation
from tagseg.report.curves import curves
from tagseg.report.gallery import gallery
from tagseg.report.markup import Markup, element
from tagseg.report.overview import configuration, overview
from tagseg.report.run import Run, read_run
from tagseg.report.scores import read_evaluations, scores
from tagseg.report.tags import tags

REPORT_FILE = "report.html"


def write_page(
    run: str | Path,
    out: str | Path | None = None,
    *,
    images: ImageDataset | None,
    ground_truth: MaskDataset | None = None,
    evaluations: Sequence[Evaluation] = (),
    count: int = 8,
) -> Path:
    """Write what a run is, made and reached into one HTML file: no network, no scripts, nothing beside it.

    Parts that the run does not have yet are left out, with a sentence that says so.

    Args:
        run: the run's folder.
        out: the file to write; by default report.html in the run's folder.
        images: the validation images; None shows none.
        ground truth: their masks, shown beside the predictions.
        evaluations: further ones than the evaluation.json in the run's folder.
        count: how many images are shown.

    Returns:
        The path of the file.
    """
    if count < 1:
        raise ValueError(f"count must be 1 or more, got {count}; to show no images, pass images=None")
    found = read_run(Path(run))
    _check_classes(found, images, ground_truth)
    path = found.folder / REPORT_FILE if out is None else Path(out)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file, for example {path / REPORT_FILE}")
    measured = read_evaluations(found, evaluations)
    shown = gallery(found, images, ground_truth, count)
    sections = [
        *shown,
        curves(found),
        scores(measured),
        tags(images),
        configuration(found),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    header = overview(found, measured, refinement=len(shown) > 1)
    path.write_text(_page(found, header, sections), encoding="utf-8")
    return path


def _page(run: Run, header: Markup, sections: Sequence[Markup]) -> str:
    style = (resources.files("tagseg.report") / "style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{run.folder.resolve().name}: tagseg report"),
        element("style", Markup(style)),
    )
    return "<!doctype html>\n" + element("html", head, element("body", header, element("main", *sections)), lang="en")


def _check_classes(run: Run, images: ImageDataset | None, ground_truth: MaskDataset | None) -> None:
    """Refuse classes of another order or name, which would be mixed up."""
    for what, source in (("images", images), ("ground truth", ground_truth)):
        if source is not None and tuple(source.classes) != run.classes:
            raise ValueError(
                f"the {what} have the classes {', '.join(source.classes)}, but the run has {', '.join(run.classes)}; "
                "open them with classes= those of the run, in its order"
            )
