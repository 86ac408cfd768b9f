"""Parser of HTML pages."""

from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "img", "br"}


class ParsedPage(HTMLParser):
    """Elements and text of a page; asserts that elements are closed in order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Record visible text."""
        if "style" not in self._open:
            self._texts.append(data)

    @property
    def text(self) -> str:
        """All visible text."""
        return " ".join(" ".join(self._texts).split())

    @property
    def sections(self) -> list[str | None]:
        """IDs of the sections in order."""
        return [attributes["id"] for attributes in self.all("section")]

    @property
    def images(self) -> list[str]:
        """Alternative texts of the images, without those of tags to check."""
        return [alt for alt in self._alternative_texts if ", tagged " not in alt]

    @property
    def doubtful_images(self) -> list[str]:
        """Alternative texts of the images with tags to check."""
        return [alt for alt in self._alternative_texts if ", tagged " in alt]

    @property
    def _alternative_texts(self) -> list[str]:
        return [attributes["alt"] or "" for attributes in self.all("img")]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of every element with this tag."""
        return [attributes for name, attributes in self.elements if name == tag]

    def with_class(self, name: str) -> list[str]:
        """Tags of the elements of a CSS class."""
        return [tag for tag, attributes in self.elements if name in (attributes.get("class") or "").split()]
