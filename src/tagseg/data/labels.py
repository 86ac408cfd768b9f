"""Labels of a row as one text, and what separates them: `;` and `|` do, a comma or a space may be part of a name."""

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable

from tagseg.errors import DataError

# Columns and keys that hold labels, by preference.
LABEL_COLUMNS = ("labels", "label", "tags", "tag", "classes", "class", "categories", "category")
_CERTAIN_SEPARATORS = (";", "|", "\t")  # no name has one
_POSSIBLE_SEPARATORS = (",", " ")
_LIST = re.compile(r"\[\s*(\]|['\"])")  # the start of a list of texts as Python, pandas and JSON write it
_NO_COMMA = re.compile(r"['\"]\s+['\"]")  # NumPy writes none; Python would join the texts
_MAX_LISTED = 4  # labels of a reading that an error lists

Cell = str | list[str]  # labels that are still to be split, or already a list


def parse_labels(value: object, place: object) -> Cell:
    """Labels of a JSON value: a text that is still to be split, a list of names or numbers, or null for none.

    Args:
        value: The value.
        place: File, line and key, for error messages.
    """
    if value is None:
        return ""
    labels = value if isinstance(value, list) else [value]
    if wrong := [label for label in labels if not isinstance(label, str | int | float)]:
        raise DataError(f"{place}: has a label that is a {type(wrong[0]).__name__}", "write names or numbers")
    return [str(label) for label in labels] if isinstance(value, list) else str(value)


def parse_list(text: str, place: object) -> list[str] | None:
    """Labels of a cell that holds a list, as pandas writes it: ['dog', 'cat']; None if it holds another text.

    Args:
        text: Content of the cell.
        place: File and line, for error messages.
    """
    if not _LIST.match(text):
        return None
    try:
        labels = None if _NO_COMMA.search(text) else ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        labels = None
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise DataError(f"{place}: holds a list that cannot be read: {text[:80]}", "write ['dog', 'cat'] or dog;cat")
    return labels


def split_labels(labels: Cell, separator: str | None) -> frozenset[str]:
    """Split the labels of one row.

    Args:
        labels: Labels as text, or as a list that is taken as it is.
        separator: What separates labels in a text; None if a text is one label.
    """
    parts = [labels] if separator is None and isinstance(labels, str) else labels
    parts = parts.split(separator) if isinstance(parts, str) else parts
    return frozenset(part.strip() for part in parts if part.strip())


def choose_separator(cells: Iterable[Cell], location: object, classes: Collection[str] | None = None) -> str | None:
    """Choose what separates labels, from all rows together; None if each text is one label.

    A comma or a space separates labels if the rows show it: the parts of a text are labels of their own, because they
    also stand alone (or, for a comma, in other texts too). Names stay whole if none of their parts does.

    Args:
        cells: Labels of every row.
        location: Name of the source, for error messages.
        classes: Names that the labels must have, if they are known; they decide.

    Raises:
        DataError: If some parts are labels of their own and others are not, so that both readings are possible.
    """
    texts = {cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()}
    certain = next((separator for separator in _CERTAIN_SEPARATORS if any(separator in text for text in texts)), None)
    possible = next((separator for separator in _POSSIBLE_SEPARATORS if any(separator in text for text in texts)), None)
    if certain or not possible:
        return certain
    split_texts = {text: split_labels(text, possible) for text in texts}
    labels = frozenset().union(*split_texts.values())
    if classes is not None and (labels <= set(classes) or texts <= set(classes)):
        return None if texts <= set(classes) else possible
    uses = Counter(label for parts in split_texts.values() for label in parts)
    joined = frozenset().union(*(parts for text, parts in split_texts.items() if parts != {text}))
    alone = joined & texts
    if possible == " " and not any(uses[label] > 1 for label in joined):
        return None  # traffic light, red car
    if possible == " " and alone == joined:
        return possible  # cat dog, cat, dog
    if possible == "," and 2 * sum(uses[label] > 1 for label in joined) >= len(joined):
        return possible
    raise DataError(
        f"{location}: labels can be read in two ways: separated by {possible!r} they are {_listed(labels)}; as whole "
        f"names they are {_listed(texts)}",
        f"choose with {{separator}}: {possible!r} for the first, ';' for the second",
    )


def _listed(labels: Collection[str]) -> str:
    """Name the first labels, and count the others."""
    names = [repr(label) for label in sorted(labels)]
    others = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + others
