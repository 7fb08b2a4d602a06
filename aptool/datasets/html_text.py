"""Text of an HTML fragment, such as a cell of a help desk's export: takes HTML, returns one line of text."""

from html.parser import HTMLParser

from typing_extensions import override

_HIDDEN = frozenset({"head", "script", "style", "template"})
_INLINE = frozenset(
    {"a", "b", "cite", "code", "em", "font", "i", "mark", "q", "s", "small", "span", "strong", "u"}
)


def strip_html(text: str) -> str:
    """Remove tags and comments, decode character references, and replace white space by single blanks."""
    parser = _TextParser()
    parser.feed(text)
    parser.close()
    return " ".join("".join(parser.parts).split())


class _TextParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden: str | None = None  # the element whose text is left out

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden is None and tag in _HIDDEN:
            self._hidden = tag
        self._separate(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = None
        self._separate(tag)

    @override
    def handle_data(self, data: str) -> None:
        if self._hidden is None:
            self.parts.append(data)

    def _separate(self, tag: str) -> None:
        """Separate the words before and after a tag of a block or a line break."""
        if tag not in _INLINE:
            self.parts.append(" ")
