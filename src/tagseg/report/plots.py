"""Charts of the report: matplotlib figures as inline SVG.

Colors are written as CSS variables of the page's style sheet, so that a chart follows the page's light and dark scheme,
and text stays text, so that it can be searched.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, nan
from xml.etree import ElementTree

import matplotlib as mpl
import matplotlib.style
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

MAX_LINES = 4  # lines of one chart that colors and dashes can tell apart
MAX_CLASSES = 40  # classes of one heat map that fit on a screen
_MAX_POINTS = 300
_MAX_MARKERS = 60
_MAX_CLASSES_WITH_NUMBERS = 12
_MAX_NAME_LENGTH = 18
_POINTS_PER_INCH = 72  # of matplotlib's SVG: one point becomes one pixel of the page

# Each color is different, because it stands for one CSS variable.
_BACKGROUND, _TEXT, _MUTED, _BORDER, _SURFACE = "#ffffff", "#1c2126", "#5a646e", "#dfe3e8", "#f4f6f8"
_HEAT, _ON_WEAK, _ON_STRONG = "#003f66", "#010101", "#fefefe"
_LINE_COLORS = ("#0072b2", "#c65200", "#008a64", "#a84a86")
_LINE_DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_CSS_VARIABLES = {
    _BACKGROUND: "--background",
    _TEXT: "--text",
    _MUTED: "--muted",
    _BORDER: "--border",
    _SURFACE: "--surface",
    _HEAT: "--heat",
    _ON_WEAK: "--on-weak",
    _ON_STRONG: "--on-strong",
    **{color: f"--line-{number}" for number, color in enumerate(_LINE_COLORS, start=1)},
}
_STRONG_SHARE = 0.6  # from here on a number is easier to read in the inverse color, in light and in dark
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a class name may contain dollar signs
    "font.size": 12,
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": _MUTED,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _BORDER,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": _BORDER,
    "xtick.color": _BORDER,
    "xtick.labelcolor": _MUTED,
    "ytick.color": _BORDER,
    "ytick.labelcolor": _MUTED,
    "ytick.major.size": 0,
}

Point = tuple[float, float]


@dataclass(frozen=True)
class Chart:
    """A chart, ready for the page.

    Attributes:
        title: What the chart shows.
        svg: The SVG element.
        note: Sentence below the title; may be empty.
    """

    title: str
    svg: Markup
    note: str = ""


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        name: Name in the legend.
        points: Pairs of x and y with ascending x; a y that is not finite leaves a gap.
    """

    name: str
    points: Sequence[Point]

    @property
    def values(self) -> list[float]:
        """Finite y values."""
        return [y for _, y in self.points if isfinite(y)]


@dataclass(frozen=True)
class XAxis:
    """The x axis that all charts of a run share.

    Attributes:
        label: Unit of x.
        end: Largest x.
        phase_end: End of the first training phase, which is shaded; 0 for none.
        phase_name: Name of this phase in the legend.
        marker: Position of a vertical line, if any.
        marker_name: Name of this line in the legend.
    """

    label: str
    end: float
    phase_end: float = 0.0
    phase_name: str = ""
    marker: float | None = None
    marker_name: str = ""


def line_chart(
    title: str,
    lines: Sequence[Line],
    x_axis: XAxis,
    *,
    note: str = "",
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
) -> Chart:
    """Draw up to `MAX_LINES` lines over one x axis.

    Args:
        title: What the chart shows.
        lines: Lines that share the y axis; at least one has a finite value.
        x_axis: The x axis and what is marked on it.
        note: Sentence below the title.
        low: Start of the y axis; None fits it to the values.
        high: End of the y axis; None fits it to the values.
        unit: Suffix of each value, for example " %".
    """
    tooltips: dict[str, str] = {}
    with _style():
        figure = Figure(figsize=(460 / _POINTS_PER_INCH, 270 / _POINTS_PER_INCH), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xlim(0, x_axis.end)
        axes.set_ylim(*_y_limits([y for line in lines for y in line.values], low, high))
        axes.set_xlabel(x_axis.label)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}{unit}")
        axes.grid(visible=True, axis="y", clip_on=False)
        for index, line in enumerate(lines):
            tooltips |= _draw_line(axes, line, index, unit)
        _draw_phase_and_marker(axes, x_axis)
        if len(lines) > 1 or x_axis.phase_end or x_axis.marker is not None:
            figure.legend(
                loc="outside upper left", ncols=2, frameon=False, handlelength=2.2, columnspacing=1.2, borderpad=0
            )
        summary = "; ".join(_describe(line, unit) for line in lines)
        return Chart(title, _to_svg(figure, f"{title}: {summary}", tooltips), note)


def heat_map(
    title: str,
    names: Sequence[str],
    shares: Sequence[Sequence[float]],
    describe: Callable[[int, int], str],
    *,
    row_label: str,
    column_label: str,
    note: str = "",
) -> Chart:
    """Draw a square table of shares as colored cells, with a tooltip for each.

    Args:
        title: What the chart shows.
        names: Names of the rows and of the columns.
        shares: Values from 0 to 1 by row and column; 0 and NaN leave a cell empty.
        describe: Tooltip of a cell, by row and column.
        row_label: What a row is.
        column_label: What a column is.
        note: Sentence below the title.
    """
    has_numbers = len(names) <= _MAX_CLASSES_WITH_NUMBERS
    side = len(names) * (40 if has_numbers else 18) / _POINTS_PER_INCH
    tooltips: dict[str, str] = {}
    with _style():
        figure = Figure(figsize=(side, side))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, len(names))
        axes.set_ylim(len(names), 0)
        axes.set_facecolor(_SURFACE)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for row, values in enumerate(shares):
            for column, share in enumerate(values):
                if share > 0:
                    tooltips[_draw_cell(axes, row, column, share, has_numbers=has_numbers)] = describe(row, column)
        labels = [_shorten(name) for name in names]
        centers = [index + 0.5 for index in range(len(names))]
        axes.set_xticks(centers, labels, rotation=90)
        axes.set_yticks(centers, labels)
        axes.tick_params(length=0, top=False, bottom=False, left=False, labeltop=True, labelbottom=False)
        for kind, texts in (("column", axes.get_xticklabels()), ("row", axes.get_yticklabels())):
            for index, text in enumerate(texts):
                text.set_gid(f"{kind}:{index}")
                tooltips[f"{kind}:{index}"] = names[index]
        axes.set_xlabel(column_label, fontweight="bold")
        axes.xaxis.set_label_position("top")
        axes.set_ylabel(row_label, fontweight="bold")
        return Chart(title, _to_svg(figure, title, tooltips), note)


def _draw_line(axes: Axes, line: Line, index: int, unit: str) -> dict[str, str]:
    """Draw a line, with a marker for each point if there are few; returns the markers' tooltips by ID."""
    color, dashes = _LINE_COLORS[index], _LINE_DASHES[index]
    points = [(x, y if isfinite(y) else nan) for x, y in _thin(line.points)]
    axes.plot(*zip(*points, strict=True), color=color, linestyle=dashes, linewidth=2, label=line.name, clip_on=False)
    axes.lines[-1].set_gid(f"line:{index}")
    finite_points = [(x, y) for x, y in points if isfinite(y)]
    if len(finite_points) > _MAX_MARKERS:
        return {}
    tooltips = {}
    for position, (x, y) in enumerate(finite_points):
        name = f"dot:{index}-{position}"
        axes.plot([x], [y], "o", color=color, markersize=5, markerfacecolor=_BACKGROUND, clip_on=False, gid=name)
        tooltips[name] = f"{line.name}: {_short(y)}{unit} at {x:.1f}".removesuffix(".0")
    return tooltips


def _draw_phase_and_marker(axes: Axes, x_axis: XAxis) -> None:
    """Shade the first phase and draw a vertical line at the marker."""
    if x_axis.phase_end:
        end = min(x_axis.phase_end, x_axis.end)
        axes.axvspan(
            0, end, color=_MUTED, alpha=0.12, linewidth=0, clip_on=False, gid="phase:", label=x_axis.phase_name
        )
    if x_axis.marker is not None:
        axes.axvline(
            x_axis.marker, color=_TEXT, linestyle=":", clip_on=False, gid="marker:", label=x_axis.marker_name, zorder=1
        )


def _draw_cell(axes: Axes, row: int, column: int, share: float, *, has_numbers: bool) -> str:
    """Draw a cell of a heat map; returns its ID."""
    name = f"cell:{row}-{column}"
    opacity = min(1.0, max(0.02, share))
    axes.add_patch(Rectangle((column, row), 1, 1, color=_HEAT, alpha=opacity, linewidth=0, clip_on=False, gid=name))
    if has_numbers:
        color = _ON_STRONG if share > _STRONG_SHARE else _ON_WEAK
        number = f"{100 * share:.0f}"
        axes.text(column + 0.5, row + 0.5, number, color=color, ha="center", va="center_baseline", gid="number:")
    return name


@contextmanager
def _style() -> Iterator[None]:
    """Draw in the report's style, whatever the caller's matplotlib settings are, and restore these."""
    with warnings.catch_warnings(), matplotlib.style.context(["default", _STYLE]):
        # Text is drawn by the browser, which has fonts for scripts that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def _to_svg(figure: Figure, label: str, tooltips: Mapping[str, str]) -> Markup:
    """Render a figure as an SVG element for an HTML page.

    An artist's ID (gid) `class:suffix` becomes the CSS class `class` of its group, with the tooltip of that ID. All
    other IDs that nothing refers to are dropped, since several charts share a page.

    Args:
        figure: The figure.
        label: Description for readers who do not see the chart.
        tooltips: Text shown while the pointer is over an artist, by the artist's ID.
    """
    file = io.StringIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    # The salt makes the IDs deterministic, and different from those of other charts.
    with mpl.rc_context({"svg.hashsalt": label}):
        bounds = None if figure.get_constrained_layout() else "tight"
        figure.savefig(file, format="svg", metadata=metadata, bbox_inches=bounds, pad_inches=0.05)
    root = ElementTree.fromstring(_without_control_characters(file.getvalue()))
    for element in list(root.iter()):
        for child in [child for child in element if child.tag.endswith(("}style", "}metadata"))]:
            element.remove(child)
    targets = {value.removeprefix("#") for element in root.iter() for key, value in element.items() if "href" in key}
    for element in root.iter():
        element.tag = element.tag.partition("}")[2] or element.tag
        for key, value in element.items():
            if key.endswith("}href"):
                element.set("href", element.attrib.pop(key))
            elif key == "style":
                element.set(key, _to_css(value))
            elif key == "id" and value not in targets:
                del element.attrib[key]
                css_class, colon, _ = value.partition(":")
                if colon:
                    element.set("class", css_class)
                if value in tooltips:
                    title = ElementTree.Element("title")
                    title.text = _without_control_characters(tooltips[value])
                    element.insert(0, title)
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib |= {"width": width, "height": height, "role": "img", "aria-label": _without_control_characters(label)}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _to_css(style: str) -> str:
    """Replace colors by the page's variables, and matplotlib's list of fonts by the page's."""
    style = re.sub(r"#[0-9a-f]{6}", lambda match: f"var({_CSS_VARIABLES[match[0]]})", style)
    return re.sub(r"'DejaVu Sans'[^;]*", "system-ui, sans-serif", style)


def _without_control_characters(text: str) -> str:
    """Replace characters that XML does not allow; class names may have any."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def _thin(points: Sequence[Point]) -> Sequence[Point]:
    """Reduce a line to at most `_MAX_POINTS` points, each the mean of its neighbors."""
    if len(points) <= _MAX_POINTS:
        return points
    bounds = [step * len(points) // _MAX_POINTS for step in range(_MAX_POINTS + 1)]
    groups = [points[start:end] for start, end in pairwise(bounds)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def _y_limits(values: Sequence[float], low: float | None, high: float | None) -> tuple[float, float]:
    """Limits that contain all values; a line that hardly changes is not magnified."""
    bottom = min([*values, *([] if low is None else [low])])
    top = max([*values, *([] if high is None else [high])])
    least_range = 0.02 * max(abs(bottom), abs(top)) or 1.0
    if top - bottom < least_range:
        bottom, top = bottom - least_range / 2, top + least_range / 2
    margin = 0.05 * (top - bottom)
    return bottom - (margin if low is None else 0.0), top + (margin if high is None else 0.0)


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 1] + "…"


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _describe(line: Line, unit: str) -> str:
    if not line.values:
        return f"{line.name} has no values"
    return f"{line.name} from {_short(line.values[0])}{unit} to {_short(line.values[-1])}{unit}"
