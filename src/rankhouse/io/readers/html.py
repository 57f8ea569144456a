"""Web pages: the text of a page without what stands around it on every page of its site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.core.errors import needs
from rankhouse.io.files import read_whole
from rankhouse.io.readers.parts import FilePart, squeezed
from rankhouse.io.readers.text import decoded

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_UNREAD = (
    "script, style, template, noscript, svg, head, iframe, object, canvas, nav, footer, aside, dialog, "
    "button, select, [hidden], [aria-hidden=true], [role=navigation], [role=banner], [role=search], "
    "[role=contentinfo], [role=complementary], body > header, a.headerlink, a.anchor"
)
# Class names and ids, whole ones, by which pages name what is around their text.
_AROUND = frozenset(
    """
nav navbar navigation sidebar breadcrumb breadcrumbs footer site-header site-footer page-header menu toc
contents-nav related sphinxsidebar topnav subnav bottomnav skip skip-link cookie-banner pagination header-nav
prev-next edit-page nav-path ads advertisement share-buttons nav-panel
""".split()  # noqa: SIM905 - read more easily
)
_INLINE = frozenset(
    """
a abbr b bdi bdo cite code data dfn em font i kbd mark q s samp small span strong sub sup time u var wbr
""".split()  # noqa: SIM905 - read more easily
)
_SHARE = 0.3  # of the page's text that an element has to hold to be its text
_PARTED = r"\s+[|·•»«–—:-]+\s+|\s*[|—»]\s*"


def page(path: Path) -> Iterator[FilePart]:
    """Read a web page."""
    yield html_part(decoded(read_whole(path), path))


def html_part(source: str) -> FilePart:
    """Return title and text of a page; the first heading is the title where it says the same, or none is."""
    with needs("files", "HTML"):
        from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - an optional package
    tree = LexborHTMLParser(source)
    title, body = tree.css_first("head > title, body > title"), tree.body
    named = squeezed(title.text()) if title is not None else ""
    if body is None:
        return FilePart("", named)
    unread = _unread(tree)
    first = next((node for node in tree.css("h1") if squeezed(node.text()) and _is_read(node, unread)), None)
    heading = squeezed(_text(first, unread - {first.mem_id})) if first is not None else ""
    whole = _text(body, unread)
    mains = [_text(node, unread) for node in tree.css("main, [role=main]") or tree.css("article")]
    text = mains[0] if len(mains) == 1 and len(mains[0]) >= _SHARE * len(whole) else whole
    return FilePart(text, _title(named, heading))


def _unread(tree: LexborHTMLParser) -> set[int]:
    """Return the elements that are not shown, or are around the text; nothing is taken out of the tree."""
    found = [node for node in tree.css(_UNREAD) if node.css_first("main, [role=main]") is None]
    for node in tree.css("[class], [id]"):
        names = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}".lower().split()
        if (
            not _AROUND.isdisjoint(names)
            and node.tag not in {"body", "html"}
            and node.css_first("h1") is None
        ):
            found.append(node)
    return {node.mem_id for node in found}


def _is_read(node: LexborNode, unread: set[int]) -> bool:
    above = node.parent
    while above is not None:
        if above.mem_id in unread:
            return False
        above = above.parent
    return True


def _title(named: str, heading: str) -> str:
    """Return the title without the name of the site: the heading where the title begins with it."""
    if not named or not heading:
        return named or heading
    parts = {part.casefold() for part in re.split(_PARTED, named)}
    return (
        heading if heading.casefold() in parts or named.casefold().startswith(heading.casefold()) else named
    )


def _text(root: LexborNode, unread: set[int]) -> str:
    """Return the text that a browser shows, a block a line."""
    pieces: list[str] = []
    pending: list[tuple[LexborNode, bool]] = [(root, False)]
    while pending:  # not recursive: pages nest as deep as they like
        node, is_end = pending.pop()
        if node.is_text_node:
            pieces.append((node.text_content or "").replace("\0", " "))
            continue
        if node.tag not in _INLINE:
            pieces.append("\0")
        if not is_end and node.mem_id not in unread:
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(list(node.iter(include_text=True))))
    blocks = (squeezed(block) for block in "".join(pieces).split("\0"))
    return "\n".join(block for block in blocks if block)
