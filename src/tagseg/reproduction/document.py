"""A document with our figures beside the paper's."""

from pathlib import Path

from tagseg._marks import fill_parts
from tagseg.errors import unknown_name
from tagseg.reproduction.costs import costs_markdown
from tagseg.reproduction.epochs import epochs_markdown
from tagseg.reproduction.markdown import table_markdown
from tagseg.reproduction.paper import RUNS, TABLES

_BLOCKS = {"costs": costs_markdown, "epochs": epochs_markdown}  # besides the paper's tables


def filled(document: str, results: Path) -> str:
    """The document with a table after each `<!-- begin TABLE -->`; `begin costs` and `begin epochs` are of all runs."""
    if not results.is_dir() or not any(results.iterdir()):
        raise ValueError(f"{results}: holds no results; name the folder that has a folder for each run")

    def part(name: str) -> str:
        if name in _BLOCKS:
            return _BLOCKS[name](results, RUNS)
        if name not in TABLES:
            raise unknown_name("table", name, [*TABLES, *_BLOCKS])
        return table_markdown(TABLES[name], results)

    return fill_parts(document, part)
