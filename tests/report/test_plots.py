"""Charts as SVG."""

import re

import matplotlib as mpl
import numpy as np
import pytest

from tagseg.report.plots import MAX_CLASSES, Line, XAxis, heat_map, line_chart


def _line_path(svg: str) -> str:
    paths: list[str] = re.findall(r'<g class="line">\s*<path d="([^"]+)"', svg)
    assert len(paths) == 1
    return paths[0]


@pytest.mark.parametrize(
    "values",
    [[0.0], [0.5, 0.5, 0.5], [0.0, 0.0], [1e-9, 1e9], [float("nan"), 1.0, float("inf"), 2.0], [-3.0, -1.0]],
)
def test_lines_of_any_values_stay_inside_the_chart(values: list[float]) -> None:
    points = list(enumerate(values, start=1))
    x_axis = XAxis("epoch", len(values), phase_end=1, phase_name="first", marker=1, marker_name="best")
    svg = line_chart("numbers", [Line("a", points)], x_axis).svg
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    markers = re.findall(r'<g class="dot">.*?<use [^>]*?x="([\d.]+)" y="([\d.]+)"', svg, re.DOTALL)
    positions = [(float(x), float(y)) for x, y in markers]
    assert len(positions) == sum(np.isfinite(values))
    assert all(0 <= x <= width and 0 <= y <= height for x, y in positions)
    assert not re.search(r"\b(nan|inf)\b", svg)


def test_missing_value_interrupts_the_line() -> None:
    line = Line("a", [(1, 1.0), (2, 2.0), (2, float("nan")), (3, 1.0), (4, 2.0)])
    path = _line_path(line_chart("loss", [line], XAxis("epoch", 4)).svg)
    assert re.sub(r"[\d.\s]", "", path) == "MLML"


def test_long_lines_are_thinned() -> None:
    points = [(step, step / 20_000) for step in range(1, 20_001)]
    chart = line_chart("loss", [Line("a", points)], XAxis("step", 20_000), low=0)
    assert _line_path(chart.svg).count("L") < 310
    assert len(chart.svg) < 20_000
    assert "from 5e-05 to 1" in chart.svg


def test_point_values_are_tooltips() -> None:
    svg = line_chart("mAP", [Line("mAP", [(1, 12.34), (2, 56.0)])], XAxis("epoch", 2), unit=" %").svg
    assert re.findall(r"<title>(.*?)</title>", svg) == ["mAP: 12.3 % at 1", "mAP: 56 % at 2"]


def test_text_stays_text_and_is_escaped() -> None:
    name = 'a <b> & "c" $x$ 犬 \x01'
    svg = line_chart(name, [Line(name, [(1, 1.0)]), Line("b", [(1, 2.0)])], XAxis("epoch", 1)).svg
    assert "<b>" not in svg
    assert 'a &lt;b&gt; &amp; "c" $x$ 犬 \ufffd</text>' in svg
    assert "<text" in svg
    assert "\x01" not in svg


def test_colors_are_variables_of_the_page() -> None:
    x_axis = XAxis("epoch", 2, phase_end=1, phase_name="first", marker=1, marker_name="best")
    lines = [Line(name, [(1, 1.0), (2, 2.0)]) for name in "abcd"]
    cells = heat_map("map", ["a"], [[0.5]], "{} {}".format, row_label="r", column_label="c")
    for svg in (line_chart("loss", lines, x_axis).svg, cells.svg):
        assert not re.search(r"#[0-9a-f]{6}", svg)
        assert "var(--" in svg


def test_charts_are_deterministic_and_leave_matplotlib_unchanged() -> None:
    settings = dict(mpl.rcParams)
    line = Line("a", [(1, 1.0), (2, 3.0)])
    first, second = (line_chart("loss", [line], XAxis("epoch", 2)).svg for _ in range(2))
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 30}):
        third = line_chart("loss", [line], XAxis("epoch", 2)).svg
    assert first == second == third
    assert dict(mpl.rcParams) == settings


def test_heat_map_leaves_zeros_empty_and_has_tooltips() -> None:
    shares = [[1.0, 0.0], [0.25, float("nan")]]
    svg = heat_map("both", ["a", "b"], shares, "{} {}".format, row_label="r", column_label="c").svg
    assert svg.count('class="cell"') == 2
    assert "<title>1 0</title>" in svg
    assert ">25</text>" in svg


def test_large_heat_map_has_no_numbers_but_full_names_as_tooltips() -> None:
    names = [f"a rather long class name {index}" for index in range(MAX_CLASSES)]
    shares = np.full((MAX_CLASSES, MAX_CLASSES), 0.5).tolist()
    svg = heat_map("all", names, shares, "{} {}".format, row_label="r", column_label="c").svg
    assert ">50</text>" not in svg
    assert svg.count(f"<title>{names[7]}</title>") == 2
    assert len(svg) < 600_000
