"""HTML and SVG as text, in which whatever is not markup already is escaped: a class may be called `<b>`."""

from html import escape

_VOID = frozenset({"br", "img", "meta"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()

    def __add__(self, other: str) -> "Markup":
        return Markup(str(self) + _safe(other))


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element with its children.

    Args:
        name: the element's name.
        children: markup as it is, and plain text, which is escaped.
        attributes: `class_` stands for `class` and `aria_label` for `aria-label`; None leaves an attribute out.
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{words}>")
    return Markup(f"<{name}{words}>{''.join(map(_safe, children))}</{name}>")


def number(value: float, digits: int = 1) -> str:
    """A number for people: no needless zeros."""
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float | None, digits: int = 1) -> str:
    """A share as per cent; a dash where there is none."""
    return "-" if share is None or share != share else f"{100 * share:.{digits}f} %"


def _safe(text: str) -> str:
    return str(text) if isinstance(text, Markup) else escape(text)


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else number(value, 2)
