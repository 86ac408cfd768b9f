"""What the site needs beyond mkdocs: pages from outside docs/, pages from code, and equations.

mkdocs loads this file as a hook (mkdocs.yml) and calls its functions.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tagseg._markdown import markdown_table
from tagseg.api import recipes
from tagseg.training.recipe import describe_settings

ROOT = Path(__file__).parents[1]
# Page of the site -> file of the repository that is read where it is.
PAGES = {
    "model.md": "src/tagseg/default/README.md",
    "photos.md": "src/tagseg/photos/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?(?=\))")

_ITEM = re.compile(r"(-|\d+\.) ")
_ITEM_OR_INDENTED = re.compile(r"(-|\d+\.) |  ")  # an item, or a line that continues one


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let blocks of code in the language `math`, which code hosts draw as equations, be equations here too."""
    fence = {"name": "math", "class": "math", "format": math_fence}
    config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", []).append(fence)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, "reference/commands.md", content=commands_reference()))
    files.append(File.generated(config, "reference/settings.md", content=settings_reference()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Read Markdown as code hosts do, and point links to the rest of the repository to the pages of the site."""
    return site_links(separate_lists(markdown), page.file.src_uri)


def site_links(markdown: str, page: str) -> str:
    """Replace links to files of the repository that are other pages of the site.

    Args:
        markdown: Text of the page.
        page: Page of the site, such as guide/data.md.
    """
    source = PurePosixPath(PAGES.get(page, f"docs/{page}"))
    targets = {path: name for name, path in PAGES.items()}

    def replace(link: re.Match[str]) -> str:
        path = os.path.normpath(source.parent / link["path"])
        target = targets.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if target is None:
            return link[0]
        return os.path.relpath(target, PurePosixPath(page).parent) + (link["anchor"] or "")

    return _LINK.sub(replace, markdown)


def separate_lists(markdown: str) -> str:
    """Insert the empty line before a list that Python-Markdown needs after a paragraph, and code hosts do not."""
    lines: list[str] = []
    in_code = False
    for line in markdown.split("\n"):
        in_code ^= line.startswith("```")
        if not in_code and _ITEM.match(line) and lines and lines[-1].strip() and not _ITEM_OR_INDENTED.match(lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def commands_reference() -> str:
    """Options of all commands, as Markdown, from the command line itself."""
    command = [sys.executable, "-m", "typer", "tagseg.cli", "utils", "docs", "--name=tagseg", "--title=Command line"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def settings_reference() -> str:
    """All recipes and settings, as Markdown, from their descriptions."""
    users = recipes()
    papers = {name: purpose for name, purpose in recipes(all=True).items() if name not in users}
    settings = [(f"`{name}`", f"`{default}`", meaning) for name, (default, meaning) in describe_settings().items()]
    return "\n\n".join(
        [
            "# Recipes and settings",
            "A recipe is all settings of a training. [`Recipe`](recipes.md) reads and changes them.",
            "## Recipes",
            "For `--recipe NAME`. `tagseg recipes NAME` prints one.",
            _recipe_table(users),
            "Those of the paper's tables and ablations:",
            _recipe_table(papers),
            "## Settings",
            "For `--set NAME=VALUE`. The defaults are those of the recipe `default`.",
            markdown_table(("setting", "default", "meaning"), settings),
        ]
    )


def _recipe_table(purposes: Mapping[str, str]) -> str:
    return markdown_table(("recipe", "purpose"), [(f"`{name}`", purpose) for name, purpose in purposes.items()])


def math_fence(source: str, *_: Any, **__: Any) -> str:
    """LaTeX as MathML, which browsers draw without fonts or scripts from elsewhere."""
    return convert(source.strip(), display="block")
