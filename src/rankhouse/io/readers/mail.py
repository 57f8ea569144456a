"""Mail: a message of its own (.eml) and mailboxes of many (.mbox)."""

from __future__ import annotations

from collections.abc import Iterator
from email import policy
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser
from pathlib import Path

from rankhouse.core.errors import MissingExtra
from rankhouse.io.files import open_bytes, read_whole
from rankhouse.io.readers.html import html_part
from rankhouse.io.readers.parts import FilePart, squeezed

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
