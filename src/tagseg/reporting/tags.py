"""The dataset's tags: how often each occurs, and which occur together."""

import numpy as np

from tagseg.data.dataset import ImageTags
from tagseg.reporting.heat_map import MOST_CLASSES, heat_map
from tagseg.reporting.markup import Markup, element, percent
from tagseg.reporting.tables import bar, table


def tags(pictures: ImageTags | None) -> Markup:
    """The section of tags; a sentence where no pictures were given."""
    heading = element("h2", "Dataset")
    if pictures is None or len(pictures) == 0:
        return element("section", heading, element("p", "No pictures were given to count tags of."), id="dataset")
    table_of_tags = pictures.tags.numpy().astype(np.int64)  # [N, C]
    together = table_of_tags.T @ table_of_tags
    counts = together.diagonal()
    rows = [
        [
            name,
            bar(count / max(1, counts.max()), str(count)),
            percent(count / len(pictures)),
        ]
        for name, count in zip(pictures.classes, counts, strict=True)
    ]
    words = f"The tags of the {len(pictures)} validation pictures, {table_of_tags.sum() / len(pictures):.1f} a picture."
    return element(
        "section",
        heading,
        element("p", words, class_="lead"),
        element(
            "div",
            table("Pictures with each tag", ("class", "pictures", "share"), rows, classes="bars"),
            _together(pictures.classes, together),
            class_="pair",
        ),
        id="dataset",
    )


def _together(classes: tuple[str, ...], together: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Markup:
    counts = together.diagonal()
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_CLASSES])
    shares = (together / np.maximum(counts[:, None], 1))[np.ix_(kept, kept)]
    names = [classes[index] for index in kept]
    note = "Of the pictures with the row's tag, the share that also has the column's tag, in per cent."
    if len(names) < len(classes):
        note += f" The {len(names)} most frequent of {len(classes)} classes."

    def describe(row: int, column: int) -> str:
        both = together[kept[row], kept[column]]
        return f"{both} of {counts[kept[row]]} pictures of {names[row]} also have {names[column]}"

    return heat_map(
        "Tags that occur together",
        names,
        shares.tolist(),
        describe,
        note=note,
        rows="with this tag",
        columns="also this",
    )
