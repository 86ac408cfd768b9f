"""Square tables of shares as coloured cells, with the numbers on hover."""

from collections.abc import Callable, Sequence

from tagseg.report.markup import Markup, element

MOST_CLASSES = 40
_MOST_WITH_NUMBERS = 12
_LONGEST_NAME = 18
_STRONG = 0.6  # the share from which a number is read better in the other colour, in light and in dark
_LETTER = 6.6  # width of a letter of the charts' font


def heat_map(
    title: str,
    names: Sequence[str],
    shares: Sequence[Sequence[float]],
    describe: Callable[[int, int], str],
    *,
    note: str = "",
    rows: str,
    columns: str,
) -> Markup:
    """A figure of one cell for each pair of names.

    Args:
        title: what is shown.
        names: of the rows, and of the columns.
        shares: 0 to 1, which becomes the colour's strength, by row and column; NaN stays empty.
        describe: the words that a cell shows on hover.
        note: a sentence below the title.
        rows: what a row is.
        columns: what a column is.
    """
    cell = 40 if len(names) <= _MOST_WITH_NUMBERS else 18
    labels = [_shortened(name) for name in names]
    margin = max(len(label) for label in labels) * _LETTER + 12
    left, top = margin + 16, margin + 18
    drawn = [element("rect", x=left, y=top, width=cell * len(names), height=cell * len(names), class_="empty")]
    for row, values in enumerate(shares):
        for column, share in enumerate(values):
            if share > 0:  # what is 0 shows the ground: a table of many classes is mostly that
                place = {"x": left + column * cell, "y": top + row * cell}
                drawn.append(_draw_cell(place, cell, share, describe(row, column), numbers=cell == 40))
    for index, label in enumerate(labels):
        middle = index * cell + cell / 2
        full = element("title", names[index])
        drawn.append(element("text", full, label, x=left - 6, y=top + middle + 4, text_anchor="end"))
        turn = f"translate({left + middle + 4:.1f} {top - 6:.1f}) rotate(-90)"
        drawn.append(element("text", full, label, transform=turn))
    middle = len(names) * cell / 2
    turn = f"translate(10 {top + middle:.1f}) rotate(-90)"
    drawn.append(element("text", rows, transform=turn, text_anchor="middle", class_="axis"))
    drawn.append(element("text", columns, x=left + middle, y=12, text_anchor="middle", class_="axis"))
    width, height = left + cell * len(names) + 2, top + cell * len(names) + 2
    svg = element(
        "svg", *drawn, viewBox=f"0 0 {width:.0f} {height:.0f}", width=width, height=height, role="img", aria_label=title
    )
    caption = element("figcaption", element("strong", title), element("small", note) if note else "")
    scroll = element("div", svg, class_="scroll", tabindex=0, role="region", aria_label=title)
    return element("figure", caption, scroll, class_="heat")


def _draw_cell(place: dict[str, float], cell: int, share: float, words: str, *, numbers: bool) -> Markup:
    square = element(
        "rect", element("title", words), **place, width=cell, height=cell, fill_opacity=max(0.02, share), class_="cell"
    )
    if not numbers:
        return square
    return square + element(
        "text",
        f"{100 * share:.0f}",
        x=place["x"] + cell / 2,
        y=place["y"] + cell / 2 + 4,
        text_anchor="middle",
        class_="on-strong" if share > _STRONG else "on-weak",
    )


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
