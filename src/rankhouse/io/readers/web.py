"""Web pages, without what stands around their text on every page of a site; and mail, which may hold such."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email import policy
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from rankhouse.core.errors import MissingExtra, needs
from rankhouse.io.files import open_bytes, read_whole
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
_PRE = "\x01"  # begins a block of preformatted text, and parts its lines where elements do
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
    mains = tree.css("main, [role=main]") or tree.css("article")
    root, (text, own) = body, _texts(body, unread, mains[0] if len(mains) == 1 else body)
    if len(mains) == 1 and len(own) >= _SHARE * len(text):
        root, text = mains[0], own
    every = root.css("h1") + ([] if named else body.css("h1"))
    first = next((node for node in every if squeezed(node.text()) and _is_read(node, unread)), None)
    heading = squeezed(_text(first, unread - {first.mem_id})) if first is not None else ""
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
    """Return the text that a browser shows, a block a line; what is preformatted is indented, as code is."""
    return _lines(_pieces(root, unread)[0])


def _texts(root: LexborNode, unread: set[int], part: LexborNode) -> tuple[str, str]:
    """Return the text of an element, and of one within it, by one walk where that is possible."""
    pieces, place = _pieces(root, unread, part.mem_id)
    text = _lines(pieces)
    if part.mem_id == root.mem_id:
        return text, text
    return text, _text(part, unread) if place is None else _lines(pieces[place])


def _pieces(root: LexborNode, unread: set[int], part: int = -1) -> tuple[list[str], slice | None]:
    """Return pieces of text and marks between them, and which of them are those of an element within."""
    pieces, within = list[str](), 0  # so many elements of preformatted text
    begin, place = -1, None
    pending: list[tuple[LexborNode, bool]] = [(root, False)]
    while pending:  # not recursive: pages nest as deep as they like
        node, is_end = pending.pop()
        if node.is_text_node:
            pieces.append((node.text_content or "").replace("\0", " ").replace(_PRE, " "))
            continue
        tag, is_part = node.tag, node.mem_id == part
        if is_part and not is_end and not within:
            begin = len(pieces)
        within -= is_end and tag == "pre"
        if is_block := tag not in _INLINE:
            pieces.append(_PRE if within else "\0")
        if is_part and is_end and begin >= 0:
            place = slice(begin, len(pieces))
        if not is_end and node.mem_id not in unread:
            if is_block:  # nothing is done at the end of others
                pending.append((node, True))
            if tag == "pre":
                pieces.append(_PRE)
                within += 1
            if tag == "tr" and (row := _row(node, unread)):
                pieces.append(row)
            else:
                pending.extend((child, False) for child in reversed(list(node.iter(include_text=True))))
    return pieces, place


def _lines(pieces: list[str]) -> str:
    """Join pieces to blocks, which are lines."""
    blocks = (
        _preformatted(block.split(_PRE)) if block.startswith(_PRE) else squeezed(block)
        for block in "".join(pieces).split("\0")
        if block
    )
    return "\n".join(block for block in blocks if block).strip("\n")


def _row(node: LexborNode, unread: set[int]) -> str:
    """Return a row of a table as a line; "" where its cells have blocks, as those of a layout have."""
    cells = [cell for cell in node.iter() if cell.tag in {"td", "th"}]
    if len(cells) < 2 or any(cell.css_first("tr") is not None for cell in cells):
        return ""
    texts = [_text(cell, unread) for cell in cells]
    return " | ".join(texts) if any(texts) and not any("\n" in text for text in texts) else ""


def _preformatted(parts: list[str]) -> str:
    """Return lines as they are, indented and set apart; "" for none."""
    text = "\n".join(part.expandtabs().strip("\n").rstrip() for part in parts if part.strip())
    return f"\n{indent(text, '    ')}\n" if text else ""


_LARGEST = 64 << 20  # bytes of a message; what is beyond, of its last attachment, is not read
_STAND_IN = 200
"""Characters of "Your program does not show HTML", at most."""
_SHOWN = ("From", "To", "Cc", "Date")
_parser = BytesParser(EmailMessage, policy=policy.default)


def message(path: Path) -> Iterator[FilePart]:
    """Read a message: the title is its subject."""
    yield _message(read_whole(path))


def mailbox(path: Path) -> Iterator[FilePart]:
    """Read a mailbox, a message a part."""
    for number, raw in enumerate(_messages(path), 1):
        part = _message(raw)
        yield FilePart(part.text, part.title or f"Message {number}", f"message {number}", f"message={number}")


def _messages(path: Path) -> Iterator[bytes]:
    """Cut a mailbox at the lines "From ..." behind empty ones, in the memory of one message."""
    held, is_begin = bytearray(), True
    with open_bytes(path) as stream:
        while line := stream.readline(1 << 20):
            if is_begin and line.startswith(b"From "):
                if held.strip():
                    yield bytes(held)
                held.clear()
            elif len(held) < _LARGEST:
                held += line[1:] if line.startswith(b">From ") else line
            is_begin = line in (b"\n", b"\r\n")
    if held.strip():
        yield bytes(held)


def _message(raw: bytes) -> FilePart:
    read = _parser.parsebytes(raw)
    lines = [f"{name}: {squeezed(_header(read, name))}" for name in _SHOWN if _header(read, name)]
    names = [name for part in read.walk() if part is not read and (name := _file_name(part))]
    attached = [f"Attached: {', '.join(names)}"] if names else []
    return FilePart(
        "\n".join([*lines, "", _body(read), *attached]).strip(), squeezed(_header(read, "Subject"))
    )


def _header(read: EmailMessage, name: str) -> str:
    try:
        return str(read[name] or "")
    except (ValueError, IndexError, AttributeError, TypeError):  # the parser of headers, with what is none
        return ""


def _file_name(part: EmailMessage) -> str:
    try:
        return squeezed(part.get_filename())
    except (ValueError, IndexError, AttributeError, TypeError):
        return ""


def _body(read: EmailMessage) -> str:
    """Return the text of a message: that of its HTML where the other is none, or a line in its place."""
    plain, html = (read.get_body((kind,)) for kind in ("plain", "html"))
    text = _content(plain).strip() if plain is not None else ""
    if html is None or len(text) > _STAND_IN:
        return text
    try:
        found = html_part(_content(html)).text
    except MissingExtra:
        return text
    return found if len(found) > 2 * len(text) else text


def _content(body: MIMEPart) -> str:
    try:
        return str(body.get_content())
    except (LookupError, ValueError, AttributeError):  # a coding that nobody knows
        payload = body.get_payload(decode=True)
        return payload.decode("cp1252", "replace") if isinstance(payload, bytes) else ""
