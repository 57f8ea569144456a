"""Parts that a reader makes of a file, each with its text, a title and its place in the file."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from rankhouse.core.errors import BadData
from rankhouse.io.files import ALWAYS, COMPRESSIONS, is_packed, most_times, read_whole

LONGEST_TITLE = 120
_space = re.compile(r"\s+")


class FilePart(msgspec.Struct, frozen=True, array_like=True):
    """A part of a file; a file that is one document is one part without a place."""

    text: str
    title: str = ""
    place: str = ""  # where it is, for people: "page 12", "slides 3–4"; "" for the whole file
    key: str = ""  # the same for ids: "page=12"


ALIVE = FilePart("")
"""Sign of life that a reader yields while it works on something long; no document."""


class Piece(msgspec.Struct, frozen=True):
    """A numbered page, slide, cell or row, before small neighbours are joined."""

    number: int
    text: str
    title: str = ""


def joined(
    pieces: Iterable[Piece], unit: str, *, least: int, most: int = 0, where: str = ""
) -> Iterator[FilePart]:
    """Yield parts of at least ``least`` words: small pieces join those behind them, the last the one before.

    Args:
        most: A part ends before the piece with which it would have more words; 0 for no limit.
        where: What stands before the place, with its comma.
    """
    waiting, words = list[Piece](), 0
    for piece in pieces:
        own = len(piece.text.split())
        if not own:
            continue
        if waiting and (words >= least or (most and words + own > most)):
            yield _part(waiting, unit, where)
            waiting, words = [], 0
        waiting.append(piece)
        words += own
    if waiting:
        yield _part(waiting, unit, where)


def _part(pieces: list[Piece], unit: str, where: str) -> FilePart:
    first, last = pieces[0], pieces[-1]
    numbers = f"{unit} {first.number}" if first is last else f"{unit}s {first.number}–{last.number}"
    title = next((piece.title for piece in pieces if piece.title), "")
    text = "\n".join(piece.text.strip() for piece in pieces)
    return FilePart(text, title, f"{where}{numbers}", f"{unit}={first.number}")


def squeezed(text: str | None) -> str:
    """Return a text on one line."""
    return _space.sub(" ", text or "").strip()


_COMMON = {"authors", "changelog", "copyright", "index", "license", "metadata", "news", "readme", "todo"}


def file_title(path: Path, *, keep_ending: bool = False) -> str:
    """Return what a file's name says: ``how_to-begin.txt.gz`` is called "how to begin".

    A name that many files have is said with the folder's: "tar: README".
    """
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    keep_ending = keep_ending or name.suffix[1:].isdecimal()  # "MPL-1.1"
    title = name.name if keep_ending else _space.sub(" ", re.sub(r"[_-]+", " ", name.stem)).strip()
    if name.stem.lower() in _COMMON and path.parent.name:
        return f"{path.parent.name}: {title}"
    return title or path.name


@contextmanager
def seekable(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is read here and there; what is compressed is unpacked into memory."""
    if is_packed(path):
        yield io.BytesIO(read_whole(path))
    else:
        with path.open("rb") as file:
            yield file


@contextmanager
def opened_zip(path: Path) -> Iterator[tuple[zipfile.ZipFile, BinaryIO]]:
    """Open a file that is a zip archive inside, as those of Office and EPUB.

    Raises BadData where it is damaged, encrypted, or unpacks to absurdly much.
    """
    with seekable(path) as file:
        if file.read(4) == b"\xd0\xcf\x11\xe0":
            raise BadData(
                "is encrypted, or of the format before 2007; save it again without a password", path
            )
        try:
            with zipfile.ZipFile(file) as archive:
                _check_size(archive, path)
                yield archive, file
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise BadData(f"is damaged ({squeezed(str(error))}); open and save it again", path) from error


def _check_size(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse archives of too much; zipfile never unpacks more than the directory says."""
    entries = archive.infolist()
    unpacked, packed = (
        sum(entry.file_size for entry in entries),
        sum(entry.compress_size for entry in entries),
    )
    if unpacked > min(ALWAYS, max(1 << 24, packed * most_times())):
        raise BadData(f"unpacks to {unpacked:,} bytes, which looks like a decompression bomb", path)
    if any(entry.flag_bits & 1 for entry in entries):
        raise BadData("is encrypted; save it again without a password", path)
