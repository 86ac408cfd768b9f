"""What a browser makes of a page."""

from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """A page's elements and texts; to read one whose elements do not close in order is an error."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the last element."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text that a reader sees."""
        if "style" not in self._open:
            self._texts.append(data)

    @property
    def text(self) -> str:
        """All that can be read."""
        return " ".join(" ".join(self._texts).split())

    @property
    def sections(self) -> list[str | None]:
        """The sections in order."""
        return [attributes["id"] for attributes in self.all("section")]

    @property
    def images(self) -> list[str]:
        """The images' descriptions."""
        return [attributes["alt"] or "" for attributes in self.all("img")]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def with_class(self, name: str) -> list[str]:
        """The kinds of the elements of a CSS class."""
        return [tag for tag, attributes in self.elements if name in (attributes.get("class") or "").split()]
