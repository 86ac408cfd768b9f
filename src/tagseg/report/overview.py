"""The head of the report, which says what was trained and what the numbers mean, and the settings at its end."""

from collections.abc import Sequence

from tagseg.evaluation.result import Evaluation
from tagseg.report.markup import Markup, element
from tagseg.report.run import Run
from tagseg.report.scores import PROTOCOLS
from tagseg.report.tables import settings_tables

_METHODS = {"single-stage": "Single-stage segmentation from image tags", "cam": "CAM baseline"}
_LINKS = ("images", "refinement", "curves", "evaluation", "dataset", "configuration")


def overview(run: Run, evaluations: Sequence[Evaluation], *, refinement: bool) -> Markup:
    """Title, one line of summary, the protocols, and a warning if settings were tuned on masks.

    Args:
        run: the run.
        evaluations: those that the report shows.
        refinement: whether it has a section about the refinement.
    """
    links = [element("a", name, href=f"#{name}") for name in _LINKS if name != "refinement" or refinement]
    return element(
        "header",
        element("p", "tagseg report", class_="kicker"),
        element("h1", run.folder.resolve().name),
        element("p", _summary(run), class_="summary"),
        *_warnings(run, evaluations),
        _protocols(evaluations),
        element("nav", *links, aria_label="sections"),
    )


def configuration(run: Run) -> Markup:
    """All settings, closed until they are asked for."""
    groups = [*settings_tables(run.config["recipe"], "")]
    for name in ("data", "versions"):
        groups += settings_tables(run.config.get(name, {}), name)
    classes = element("p", element("strong", "classes: "), ", ".join(run.classes))
    summary = element("summary", "All settings of this run")
    body = element("div", *groups, class_="columns")
    return element(
        "section",
        element("h2", "Configuration"),
        element("details", summary, classes, body),
        id="configuration",
    )


def _summary(run: Run) -> str:
    settings, data = run.recipe, run.config.get("data", {})
    images = [
        f"{data[part]['image_count']:,} {words} images"
        for part, words in (("train", "training"), ("validation", "validation"))
        if isinstance(data.get(part), dict) and isinstance(data[part].get("image_count"), int)
    ]
    kept = f" (epoch {run.kept_epoch} kept)" if run.kept_epoch else " (none kept yet)"
    done = max((line["epoch"] for line in run.lines("validation")), default=0)
    epochs = settings.training.epochs
    parts = [
        f"{_METHODS[settings.model.method]} with {settings.model.backbone}",
        f"{len(run.classes)} class{'' if len(run.classes) == 1 else 'es'}",
        *images,
        (f"{epochs} epoch{'' if epochs == 1 else 's'}" if done == epochs else f"{done} of {epochs} epochs so far")
        + kept,
        *([_duration(run.progress.seconds)] if run.progress else []),
    ]
    return " · ".join(parts)


def _protocols(evaluations: Sequence[Evaluation]) -> Markup:
    named = list(dict.fromkeys(name for evaluation in evaluations for name in evaluation.confusion))
    lines = [
        element("li", element("span", name, class_="protocol"), f": {PROTOCOLS.get(name, 'see its evaluation')}.")
        for name in named
    ]
    trained = (
        "Trained from image tags; masks are used for evaluation only, never for training or for choosing the model."
    )
    heading = "Protocols of the evaluation: " if lines else "No evaluation yet, so no protocol."
    return element(
        "div", element("p", trained), element("p", heading), element("ul", *lines) if lines else "", class_="protocols"
    )


def _warnings(run: Run, evaluations: Sequence[Evaluation]) -> list[Markup]:
    tuned = []
    if run.predictor is not None and run.predictor.settings.thresholds_from == "masks":
        tuned.append("the model's own settings")
    tuned += [f"evaluation {place}" for place, evaluation in enumerate(evaluations, start=1) if evaluation.caveat]
    if not tuned:
        return []
    words = (
        f"Tuned on masks: {', '.join(tuned)}. Thresholds were chosen on true masks, so these are no longer "
        "results of image tags alone."
    )
    return [element("p", element("strong", "Warning. "), words, class_="warning", role="note")]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
