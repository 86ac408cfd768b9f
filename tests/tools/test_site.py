import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tagseg
from tools.site import ROOT, math_fence, separate_lists, site_links

DOCS = ROOT / "docs"
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
LOADING = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}  # what a page loads by itself


class LoadedFiles(HTMLParser):
    """Collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [
            value for name, value in attrs if (tag, name) in LOADING and value and re.match(r"(https?:)?//", value)
        ]


def loaded_from_elsewhere(page: Path) -> list[str]:
    parser = LoadedFiles()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.addresses


@pytest.mark.slow
def test_site_is_built_without_warnings_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    build = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    sources = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert {tmp_path / source for source in sources} <= set(pages)
    assert not [(page.name, address) for page in pages for address in loaded_from_elsewhere(page)]
    assert not [
        file.name for file in tmp_path.rglob("*.css") if re.search(r"url\([\"']?(https?:)?//", file.read_text())
    ]
    # The search of pages that are opened from the file system reads this script.
    index = (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8").removeprefix("var __index = ")
    locations = {entry["location"] for entry in json.loads(index)["docs"]}
    assert {"reference/parts.html#tagseg.pamr", "guide/quickstart.html#5-train"} <= locations
    assert "<math" in (tmp_path / "method.html").read_text(encoding="utf-8")


def test_reference_has_every_public_name_once() -> None:
    names = [name for page in REFERENCE for name in re.findall(r"^::: tagseg\.(\w+)$", page.read_text(), re.MULTILINE)]
    assert sorted(names) == sorted(set(dir(tagseg)) - {"__version__"}), (
        "give each name of tagseg/__init__.pyi a line ::: tagseg.NAME in docs/reference"
    )


def test_equations_are_mathml() -> None:
    equations = re.findall(r"^```math\n(.*?)^```", (DOCS / "method.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(equations) >= 11
    for equation in equations:
        mathml = math_fence(equation)
        assert mathml.startswith("<math")
        assert "\\" not in mathml, equation  # a command that was not understood


def test_links_out_of_the_documents_lead_to_pages_of_the_site() -> None:
    assert site_links("[card](../src/tagseg/default/README.md#limits)", "index.md") == "[card](model.md#limits)"
    assert site_links("[data](../../CHANGELOG.md)", "guide/data.md") == "[data](../changelog.md)"
    assert site_links("[method](docs/method.md)", "contributing.md") == "[method](method.md)"
    for same in (
        "[data](data.md)",
        "[paper](https://arxiv.org/abs/2005.08104)",
        "[file](../Makefile)",
        "[here](#here)",
    ):
        assert site_links(same, "guide/check.md") == same


def test_lists_begin_without_an_empty_line_as_on_code_hosts() -> None:
    assert separate_lists("Both:\n- a\n  b\n- c\nd") == "Both:\n\n- a\n  b\n- c\nd"
    assert separate_lists("In this order:\n1. a\n2. b") == "In this order:\n\n1. a\n2. b"
    code = "```\ndiff:\n- a\n```"
    assert separate_lists(code) == code
