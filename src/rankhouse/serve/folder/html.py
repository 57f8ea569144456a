"""What a person reads of an HTML file: its title and its text, a line a block."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_UNREAD = frozenset({"script", "style", "template", "noscript", "svg", "head"})
_INLINE = frozenset(
    {"a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "dfn", "em", "font", "i", "kbd", "mark", "q"}
    | {"s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var", "wbr"}
)


def html_text(source: str) -> tuple[str, str]:
    """Return title and text of a page; the first heading is the title where none is said."""
    reader = _Reader()
    reader.feed(source)
    reader.close()
    blocks = (re.sub(r"\s+", " ", block).strip() for block in "".join(reader.text).split("\0"))
    text = "\n".join(block for block in blocks if block)
    named = ("".join(reader.named[name]) for name in ("title", "h1"))
    return next(filter(None, (re.sub(r"\s+", " ", name).strip() for name in named)), ""), text


class _Reader(HTMLParser):
    """Collects the text that a browser shows; blocks are parted by a zero sign."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.named: dict[str, list[str]] = {"title": [], "h1": []}
        self._unread = 0  # how many open elements are not shown
        self._open = ""  # the title or heading that is being read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        del attrs
        if tag == "body":
            self._unread = 0
        self._unread += tag in _UNREAD
        if tag in self.named and not self.named[tag]:
            self._open = tag
        if tag not in _INLINE:
            self.text.append("\0")

    def handle_endtag(self, tag: str) -> None:
        """End an element."""
        self._unread = max(0, self._unread - (tag in _UNREAD))
        if tag == self._open:
            self._open = ""
        if tag not in _INLINE:
            self.text.append("\0")

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._open:
            self.named[self._open].append(data)
        if not self._unread and self._open != "title":
            self.text.append(data.replace("\0", " "))
