"""Read JSON that others wrote, whose errors are one line that names the place, and compare what JSON holds."""

import json
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from tagseg.errors import DataError, TagsegError

T = TypeVar("T")


def parse_json(text: str, place: object, advice: str = "", *, error: type[TagsegError] = DataError) -> Any:
    """Parse JSON.

    Args:
        text: The JSON.
        place: File and line, for the error.
        advice: What to do about the error.
        error: Type of the error.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as reason:  # a ValueError too: a number of thousands of digits
        raise error(f"{place}: is not valid JSON ({reason})", advice) from None


def validated(
    kind: type[T],
    value: Any,
    place: object,
    advice: str = "",
    *,
    error: type[TagsegError] = DataError,
    strict: bool = True,
) -> T:
    """Check the types of a parsed JSON.

    Args:
        kind: Type that it should have, such as a `TypedDict`.
        value: The parsed JSON.
        place: File and line, for the error, which names the first wrong value as `annotations[3].bbox`.
        advice: What to do about the error.
        error: Type of the error.
        strict: Refuse values of other types, such as the text "1" for a number.
    """
    try:
        result: T = _adapter(cast("Hashable", kind)).validate_python(value, strict=strict)
        return result
    except ValidationError as reason:
        first = reason.errors()[0]
        if isinstance(cause := first.get("ctx", {}).get("error"), TagsegError):
            raise cause from None
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        message = first["msg"].removeprefix("Value error, ")
        raise error(f"{place}: {f'{path}: ' if path else ''}{message[:1].lower()}{message[1:]}", advice) from None


def as_json(value: Any) -> Any:
    """A value as it reads back from JSON: tuples become lists."""
    return json.loads(json.dumps(value))


def differences(existing: Any, new: Any, field: str = "") -> Iterator[str]:
    """Fields in which two configurations differ, in words."""
    if isinstance(existing, dict) and isinstance(new, dict):
        for key in {**existing, **new}:
            yield from differences(existing.get(key), new.get(key), f"{field}.{key}".lstrip("."))
    elif existing != new:
        yield f"{field.removeprefix('recipe.')} is {_shorten(existing)} there, {_shorten(new)} here"


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
