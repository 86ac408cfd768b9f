"""The dataset's tags: how often each occurs, and which occur together."""

import numpy as np

from tagseg.data.dataset import ImageDataset
from tagseg.report.heat_map import MOST_CLASSES, heat_map
from tagseg.report.markup import Markup, element, percent
from tagseg.report.tables import bar, table


def tags(images: ImageDataset | None) -> Markup:
    """The section of tags; a sentence where no images were given."""
    heading = element("h2", "Dataset")
    if images is None or len(images) == 0:
        return element("section", heading, element("p", "No images were given to count tags of."), id="dataset")
    table_of_tags = images.labels.numpy().astype(np.int64)  # [N, C]
    together = table_of_tags.T @ table_of_tags
    counts = together.diagonal()
    rows = [
        [
            name,
            bar(count / max(1, counts.max()), str(count)),
            percent(count / len(images)),
        ]
        for name, count in zip(images.classes, counts, strict=True)
    ]
    words = f"The tags of the {len(images)} validation images, {table_of_tags.sum() / len(images):.1f} an image."
    return element(
        "section",
        heading,
        element("p", words, class_="lead"),
        element(
            "div",
            table("Images with each tag", ("class", "images", "share"), rows, classes="bars"),
            _together(images.classes, together),
            class_="pair",
        ),
        id="dataset",
    )


def _together(classes: tuple[str, ...], together: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Markup:
    counts = together.diagonal()
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_CLASSES])
    shares = (together / np.maximum(counts[:, None], 1))[np.ix_(kept, kept)]
    names = [classes[index] for index in kept]
    note = "Of the images with the row's tag, the share that also has the column's tag, in per cent."
    if len(names) < len(classes):
        note += f" The {len(names)} most frequent of {len(classes)} classes."

    def describe(row: int, column: int) -> str:
        both = together[kept[row], kept[column]]
        return f"{both} of {counts[kept[row]]} images of {names[row]} also have {names[column]}"

    return heat_map(
        "Tags that occur together",
        names,
        shares.tolist(),
        describe,
        note=note,
        rows="with this tag",
        columns="also this",
    )
