"""Class names that look like a mistake: spellings of each other, several labels in one, names for no class."""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

_MIN_LETTERS = 5  # of words in which one letter is a spelling; cat and car are different
_MIN_LETTERS_REPLACED = 7  # of words in which a letter is another; horse and house are different
_NO_CLASS = frozenset({"background", "empty", "false", "negative", "negatives", "no", "none", "nothing"})


def spellings(classes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Groups of names that differ only in case, spaces, hyphens or underscores, in a plural, or in a letter."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        by_text[re.sub(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])", "", name).casefold()].append(name)
    groups = [group for group in by_text.values() if len(group) > 1]
    by_initials: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, *_ in by_text.values():
        by_initials[tuple(word[:1] for word in _words(name))].append(name)
    for names in by_initials.values():
        groups += [[a, b] for a, b in combinations(names, 2) if _differ_in_spelling(_words(a), _words(b))]
    return tuple(tuple(group) for group in groups)


def several_labels(classes: Sequence[str]) -> tuple[str, ...]:
    """Names that look like several labels with another separator, because a part of the name is a class."""
    parts = {name: [part.strip() for part in re.split(r"[;,|/]", name)] for name in classes}
    return tuple(name for name in classes if len(parts[name]) > 1 and set(parts[name]) & set(classes))


def names_of_no_class(classes: Sequence[str]) -> tuple[str, ...]:
    """Names that say that a class is absent: "background", "none", "no dog" beside "dog", 0 beside 1."""
    if set(classes) == {"0", "1"}:
        return ("0",)
    known = {_words(name) for name in classes}
    return tuple(
        name
        for name in classes
        if "".join(words := _words(name)) in _NO_CLASS
        or (words[:1] in {("no",), ("not",), ("non",), ("without",)} and words[1:] in known)
    )


def _words(name: str) -> tuple[str, ...]:
    return tuple(re.split(r"(?<=\w)[\s_-]+(?=\w)", name.casefold()))


def _differ_in_spelling(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two names are equal except for one word, which is a plural or a misspelling of the other."""
    if len(first) != len(second):
        return False
    pairs = [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]]
    return len(pairs) == 1 and (_is_plural(*pairs[0]) or _is_misspelling(*pairs[0]))


def _is_plural(first: str, second: str) -> bool:
    short, long = sorted((first, second), key=len)
    return len(short) > 2 and short.isalpha() and long in {f"{short}s", f"{short}es", f"{short[:-1]}ies"}


def _is_misspelling(first: str, second: str) -> bool:
    """Whether words differ in one letter, not the first, that is left out, replaced, or swapped with the next."""
    short, long = sorted((first, second), key=len)
    if len(short) < _MIN_LETTERS or len(long) - len(short) > 1 or not (first + second).isalpha():
        return False
    start = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if start == 0:
        return False
    if len(short) < len(long):
        return short[start:] == long[start + 1 :]
    swapped = short[:start] + short[start : start + 2][::-1] + short[start + 2 :]
    return swapped == long or (len(short) >= _MIN_LETTERS_REPLACED and short[start + 1 :] == long[start + 1 :])
