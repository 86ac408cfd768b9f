"""Line charts as SVG. Colours come from the page's style, so that they suit light, dark and paper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isfinite, log10

from tagseg.report.markup import Markup, element, number

_WIDTH, _HEIGHT = 560, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 546, 40, 234
_MOST_POINTS = 300
_MOST_DOTS = 60
COLOURS = 4  # the style tells so many lines apart, by colour and by dashes

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A named line.

    Attributes:
        name: for the legend.
        points: x and y, by rising x; a y that is not finite leaves a gap.
    """

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Marks:
    """What all charts of a run have in common.

    Attributes:
        x_label: what x counts.
        end: the largest x.
        phase: until where the first phase lasts; 0 for none.
        phase_name: what to call it.
        chosen: the x to point at, if any.
        chosen_name: what to call it.
    """

    x_label: str
    end: float
    phase: float = 0.0
    phase_name: str = ""
    chosen: float | None = None
    chosen_name: str = ""


def line_chart(
    title: str,
    lines: Sequence[Line],
    marks: Marks,
    *,
    note: str = "",
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
) -> Markup:
    """A figure of up to four lines over one x axis.

    Args:
        title: what is shown.
        lines: they share the y axis.
        marks: the x axis and what is marked on it.
        note: a sentence below the title.
        low: where the y axis starts; by default near the lowest value.
        high: where it ends; by default near the highest value.
        unit: what follows a value, for example " %".
    """
    values = [y for line in lines for _, y in line.points if isfinite(y)]
    ticks = _ticks(min(values) if low is None else low, max(values) if high is None else high)
    bottom, top = ticks[0], ticks[-1]

    def place(x: float, y: float) -> Point:
        return (
            _LEFT + (_RIGHT - _LEFT) * x / marks.end,
            _BOTTOM - (_BOTTOM - _TOP) * (y - bottom) / (top - bottom),
        )

    drawn = [_draw_line(line, kind, place, unit) for kind, line in enumerate(lines, start=1)]
    svg = element(
        "svg",
        *_draw_y_axis(ticks, place, unit),
        *_draw_x_axis(marks, place),
        *_draw_marks(marks, place),
        *drawn,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{title}: {'; '.join(_in_words(line, unit) for line in lines)}",
    )
    legend = element(
        "span",
        *(element("span", _sample(kind), line.name, class_="key") for kind, line in enumerate(lines, start=1)),
        class_="keys",
    )
    caption = [element("strong", title), legend if len(lines) > 1 else "", element("small", note) if note else ""]
    return element("figure", element("figcaption", *caption), svg, class_="chart")


def _draw_line(line: Line, kind: int, place: Callable[[float, float], Point], unit: str) -> Markup:
    points = _thinned(line.points)
    path, pen_down = [], False
    for x, y in points:
        if isfinite(y):
            across, down = place(x, y)
            path.append(f"{'L' if pen_down else 'M'}{across:.1f} {down:.1f}")
        pen_down = isfinite(y)
    stroke = element("path", d="".join(path), class_=f"line line-{kind}")
    shown = [point for point in points if isfinite(point[1])]
    if len(shown) > _MOST_DOTS:
        return stroke
    dots = []
    for x, y in shown:
        across, down = place(x, y)
        words = element("title", f"{line.name}: {_short(y)}{unit} at {number(x)}")
        dots.append(element("circle", words, cx=across, cy=down, r=3, class_=f"dot line-{kind}"))
    return stroke + Markup("".join(dots))


def _draw_y_axis(ticks: Sequence[float], place: Callable[[float, float], Point], unit: str) -> list[Markup]:
    digits = max(0, -floor(log10(ticks[1] - ticks[0]) + 1e-9))
    drawn = []
    for tick in ticks:
        _, down = place(0, tick)
        drawn.append(element("line", x1=_LEFT, x2=_RIGHT, y1=down, y2=down, class_="grid"))
        drawn.append(element("text", f"{tick:.{digits}f}{unit}", x=_LEFT - 6, y=down + 4, text_anchor="end"))
    return drawn


def _draw_x_axis(marks: Marks, place: Callable[[float, float], Point]) -> list[Markup]:
    drawn = []
    for tick in _ticks(0, marks.end, whole=True):
        if tick <= marks.end:
            across, _ = place(tick, 0)
            drawn.append(element("text", number(tick), x=across, y=_BOTTOM + 18, text_anchor="middle"))
    middle = (_LEFT + _RIGHT) / 2
    return [*drawn, element("text", marks.x_label, x=middle, y=_HEIGHT - 4, text_anchor="middle", class_="axis")]


def _draw_marks(marks: Marks, place: Callable[[float, float], Point]) -> list[Markup]:
    """The first phase as a shade, the chosen place as a vertical line; their names stand above the lines."""
    drawn = []
    if marks.phase:
        across, _ = place(min(marks.phase, marks.end), 0)
        drawn.append(
            element("rect", x=_LEFT, y=_TOP, width=across - _LEFT, height=_BOTTOM - _TOP, class_="phase"),
        )
        drawn.append(element("text", marks.phase_name, x=_LEFT, y=_TOP - 24))
    if marks.chosen is not None:
        across, _ = place(marks.chosen, 0)
        late = marks.chosen > marks.end / 2
        drawn.append(element("line", x1=across, x2=across, y1=_TOP - 4, y2=_BOTTOM, class_="chosen"))
        drawn.append(
            element("text", marks.chosen_name, x=across, y=_TOP - 9, text_anchor="end" if late else "start"),
        )
    return drawn


def _sample(kind: int) -> Markup:
    stroke = element("path", d="M0 5H24", class_=f"line line-{kind}")
    return element("svg", stroke, viewBox="0 0 24 10", width=24, height=10, aria_hidden="true")


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """At most 300 points: means of neighbours, which a screen could not tell apart anyway."""
    if len(points) <= _MOST_POINTS:
        return points
    bounds = [step * len(points) // _MOST_POINTS for step in range(_MOST_POINTS + 1)]
    groups = [points[start:end] for start, end in pairwise(bounds)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Four to eight round numbers around a range."""
    if high - low < (least := 0.02 * abs(high)):  # a line that hardly moves is to look so
        low, high = low - least / 2, high + least / 2
    rough = (high - low or 1.0) / 5
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    if whole:
        step = max(1.0, step)
    first, last = floor(low / step + 1e-9), max(ceil(high / step - 1e-9), floor(low / step) + 1)
    return [index * step for index in range(first, last + 1)]


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _in_words(line: Line, unit: str) -> str:
    values = [y for _, y in line.points if isfinite(y)]
    if not values:
        return f"{line.name} has no values"
    return f"{line.name} from {_short(values[0])}{unit} to {_short(values[-1])}{unit}"
