"""The parts of a report: charts that draw whatever numbers come, and images that show what they say."""

import re

import numpy as np
import pytest

from tagseg.data import shapes
from tagseg.report.heat_map import heat_map
from tagseg.report.images import as_jpeg, colours, paint, side_for, small_copy
from tagseg.report.lines import Line, Marks, line_chart
from tagseg.report.markup import Markup, element
from tagseg.report.stages import evenly_spaced


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = element("i", "a < b")
    assert element("p", inner, "<b>", title='"x"') == ('<p title="&quot;x&quot;"><i>a &lt; b</i>&lt;b&gt;</p>')
    assert inner + "<b>" == "<i>a &lt; b</i>&lt;b&gt;"
    assert isinstance(inner + "<b>", Markup)


@pytest.mark.parametrize(
    "values",
    [[0.0], [0.5, 0.5, 0.5], [0.0, 0.0], [1e-9, 1e9], [float("nan"), 1.0, float("inf"), 2.0], [-3.0, -1.0]],
)
def test_lines_of_any_values_stay_inside_the_chart(values: list[float]) -> None:
    points = [(x, value) for x, value in enumerate(values, start=1)]
    drawn = line_chart("numbers", [Line("a", points)], Marks("epoch", len(values), phase=1, chosen=1))
    places = [(float(x), float(y)) for x, y in re.findall(r'[ML]([\d.]+) ([\d.]+)(?=[ML"])', drawn)]
    assert len(places) == sum(np.isfinite(values))
    assert all(0 <= x <= 560 and 0 <= y <= 270 for x, y in places)
    assert not re.search(r"\b(nan|inf)\b", drawn)


def test_a_gap_is_no_line() -> None:
    line = Line("a", [(1, 1.0), (2, 2.0), (2, float("nan")), (3, 1.0), (4, 2.0)])
    (path,) = re.findall(r'<path d="([^"]+)"', line_chart("loss", [line], Marks("epoch", 4)))
    assert re.sub(r"[\d. ]", "", path) == "MLML"


def test_long_lines_are_thinned_but_keep_their_course() -> None:
    points = [(step, step / 20_000) for step in range(1, 20_001)]
    drawn = line_chart("loss", [Line("a", points)], Marks("step", 20_000), low=0)
    assert drawn.count("L") < 310
    assert len(drawn) < 10_000
    assert "from 5e-05 to 1" in drawn


def test_heat_map_leaves_out_zeros_and_tells_the_rest_on_hover() -> None:
    drawn = heat_map("both", ["a", "b"], [[1.0, 0.0], [0.25, float("nan")]], "{} {}".format, rows="r", columns="c")
    assert drawn.count('class="cell"') == 2
    assert "<title>1 0</title>" in drawn
    assert ">25</text>" in drawn


def test_images_are_evenly_spaced_over_sorted_names() -> None:
    names = ["d", "a", "c", "b", "f", "e"]
    assert [names[index] for index in evenly_spaced(names, 3)] == ["a", "c", "e"]
    assert [names[index] for index in evenly_spaced(names, 99)] == sorted(names)
    assert evenly_spaced([], 3) == []


def test_painted_pixels_show_class_background_and_ignored() -> None:
    image = np.full((4, 6, 3), (200, 100, 0), dtype=np.uint8)
    labels = np.array([[0, 1, -1]])
    painted = paint(image, labels, labels == -1)
    background, ignored = painted[0, 0], painted[0, 5]
    assert background[0] > background[2]
    assert ignored[0] == ignored[1] == ignored[2] < background.mean()
    assert painted[2, 3].tolist() != background.tolist()


def test_legend_has_the_colours_of_the_images() -> None:
    grey = np.full((9, 9, 3), 128, dtype=np.uint8)
    painted = paint(grey, np.full((9, 9), 2))
    assert colours(3)[2] == "#" + bytes(painted[4, 4].tolist()).hex()
    assert len(set(colours(20))) == 21


@pytest.mark.parametrize("images", [1, 60, 500])
def test_images_fit_into_the_page(images: int) -> None:
    detailed = shapes(1, size=512).images.read(0)  # with grain, which JPEG hates
    copy = small_copy(detailed, side_for(images))
    assert len(as_jpeg(copy)) * images < 2_900_000


def test_small_copies_keep_their_shape() -> None:
    assert small_copy(np.zeros((100, 1000, 3), dtype=np.uint8), 320).shape == (32, 320, 3)
    assert small_copy(np.zeros((48, 64, 3), dtype=np.uint8), 320).shape == (144, 192, 3)
    assert small_copy(np.zeros((3, 1000, 3), dtype=np.uint8), 64).shape[0] >= 1
