"""Tables: of bars, and of settings."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from tagseg.report.markup import Markup, element


def table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, classes: str = "", foot: int = 0
) -> Markup:
    """A table that scrolls by itself on a narrow screen.

    Args:
        caption: what it shows.
        head: the columns' names.
        rows: a cell each; the first of a row is its heading.
        classes: CSS classes.
        foot: how many of the last rows sum up the others.
    """
    lines = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    body = len(lines) - foot
    content = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *(element("th", name, scope="col") for name in head))),
        element("tbody", *lines[:body]),
        element("tfoot", *lines[body:]) if foot else "",
        class_=classes or None,
    )
    return element("div", content, class_="scroll", tabindex=0, role="region", aria_label=caption)


def bar(share: float, words: str, *, kind: int = 1) -> Markup:
    """A cell's number beside a bar of that length; NaN has none.

    Args:
        share: the length, 0 to 1.
        words: the number.
        kind: which of the lines' colours.
    """
    length = 0.0 if isnan(share) else 100 * min(1.0, max(0.0, share))
    track = element("rect", width=100, height=10, class_="track")
    filled = element("rect", width=length, height=10, class_=f"fill-{kind}")
    drawn = element(
        "svg", track, filled, viewBox="0 0 100 10", preserveAspectRatio="none", class_="bar", aria_hidden="true"
    )
    return element("span", drawn, element("span", words, class_="figure"), class_="measure")


def settings_tables(values: Mapping[str, Any], name: str) -> list[Markup]:
    """Nested settings as one table for each group, the outer ones first."""
    plain = [[key, _in_words(value)] for key, value in values.items() if not isinstance(value, Mapping)]
    tables = [table(name, ("setting", "value"), plain, classes="settings")] if plain else []
    for key, value in values.items():
        if isinstance(value, Mapping):
            tables += settings_tables(value, f"{name}: {key}" if name else key)
    return tables


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "by default"
    return ", ".join(map(_in_words, value)) if isinstance(value, list) else str(value)
