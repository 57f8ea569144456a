"""Every error rankhouse raises on purpose, and the one kind of warning.

RankhouseError
├── WrongUse          a name, an option or an argument that is not accepted       (exit code 2)
│   └── UnknownArgument   one that a function of the Python API does not have
├── BadData           the content of an input file: says file, line, reason, mend
│   └── DuplicateId   an id that was already taken
├── MissingInput      a file or folder that is not there
├── NoSuchDocument    an id that no document has; a KeyError as well
├── BadIndex          an index folder that is damaged, foreign, half-written or of another version
├── BadModel          a model folder or checkpoint that cannot be used
├── MissingExtra      a feature whose optional packages are not installed
├── StoreFailed       a database or search engine that cannot be reached, or refuses
└── OutputFailed      the result could not be written (no permission, disk full)

RankhouseWarning      work goes on, but the user should know
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

_LOOKED_AT = 20_000  # ids; more of them take longer than a person waits for an error


def name_few(items: Iterable[str], most: int = 5, *, quoted: bool = False) -> str:
    """Name the first few of many, for a message: ``a, b, c ...``.

    Args:
        items: Ids, names and the like.
        most: How many are named.
        quoted: Put each in quotation marks.
    """
    names = [f'"{item}"' if quoted else item for item in items]
    return ", ".join(names[:most]) + (" ..." if len(names) > most else "")


def did_you_mean(name: str, known: Iterable[str], sign: str = '"', end: str = '"') -> str:
    """Return ``(did you mean "NAME"?)``, a space before it, where a known name is near; else "".

    ``sign`` and ``end`` stand around the name.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only for a name that is wrong

    close = get_close_matches(name, known, 1)
    return f" (did you mean {sign}{close[0]}{end}?)" if close else ""


class RankhouseError(Exception):
    """Any fault that rankhouse explains; the message says what, where and what to do next.

    >>> import rankhouse as rh
    >>> try:
    ...     rh.read_run("absent.run")
    ... except rh.RankhouseError as error:
    ...     print(error)
    absent.run: there is no such file...
    """


class WrongUse(RankhouseError, ValueError):
    """A name, an option or an argument that is not accepted."""


class UnknownArgument(WrongUse, TypeError):
    """An argument that a function of the Python API does not have."""


class BadData(RankhouseError, ValueError):
    """The content of an input is wrong.

    Args:
        reason: What is wrong and what is accepted instead.
        path: The file it was found in.
        line: Its line, counted from 1.
    """

    def __init__(self, reason: str, path: Path | str | None = None, line: int | None = None) -> None:
        self.reason, self.path, self.line = reason, path, line
        where = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(where + reason)


class DuplicateId(BadData):
    """An id that an earlier record already has.

    Attributes:
        record: The id, where it is known.
    """

    record = ""


class MissingInput(RankhouseError, FileNotFoundError):
    """A file or folder that is not there."""


class NoSuchDocument(RankhouseError, KeyError):
    """An id that no document has.

    Args:
        doc_id: The id.
        known: Those that there are; they are looked at when somebody reads the message.
    """

    def __init__(self, doc_id: object, known: Collection[str] = ()) -> None:
        self.doc_id, self.known, self._said = doc_id, known, ""
        super().__init__(doc_id)

    def __reduce__(self) -> tuple[object, ...]:
        """Go to another process without the index."""
        return NoSuchDocument, (self.doc_id,), {"_said": str(self)}

    def __str__(self) -> str:
        if self._said:
            return self._said
        some = list(islice(self.known, _LOOKED_AT))
        near = did_you_mean(self.doc_id, some) if isinstance(self.doc_id, str) else ""
        like = f", like {name_few(some, 2, quoted=True)}" if some else ""
        shown = f'"{self.doc_id:.80}"' if isinstance(self.doc_id, str) else f"{self.doc_id!r:.80}"
        return (
            f"there is no document {shown} among the {len(self.known):,} of the index{near}; ids are strings "
            f"and match exactly{like}"
        )


class BadIndex(RankhouseError):
    """An index folder that is damaged, foreign, half-written or of another version."""


class BadModel(RankhouseError):
    """A model folder or checkpoint that cannot be used."""


class MissingExtra(RankhouseError, ImportError):
    """A feature whose optional packages are not installed.

    Args:
        feature: What was asked for.
        extra: The extra of this package that brings it.
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f'{feature} needs optional packages: run  pip install "rankhouse[{extra}]"')


class StoreFailed(RankhouseError):
    """A database or search engine that cannot be reached, or refuses what it was asked."""


class OutputFailed(RankhouseError, OSError):
    """A result could not be written; whatever stood there before still does."""


class RankhouseWarning(UserWarning):
    """Work goes on, but something the user should know was seen.

    >>> import rankhouse as rh, warnings
    >>> warnings.simplefilter("error", rh.RankhouseWarning)  # stop at whatever would be a warning
    """


def warn(text: str, stacklevel: int = 2) -> None:
    """Warn the user; the level counts as that of :func:`warnings.warn` would where this is called."""
    warnings.warn(text, RankhouseWarning, stacklevel=stacklevel + 1)


@contextmanager
def needs(extra: str, feature: str) -> Iterator[None]:
    """Name the extra to install where an import inside the block fails.

    Raises:
        MissingExtra: A package that the feature needs is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(feature, extra) from error


_called: dict[str, str] = {}


def call_path(path: Path, name: str) -> None:
    """Show a local copy's path by another name, its URL, in messages from now on."""
    _called[str(path)] = name


def as_called(text: str) -> str:
    """Return a text with paths as people know them, see :func:`call_path`."""
    for path, name in _called.items():
        text = text.replace(path, name)
    return text


# Control characters have pictures of their own; what turns a line's direction, or is no character, has none.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
_WITHOUT_PICTURE = (range(0x80, 0xA0), range(0x202A, 0x202F), range(0x2066, 0x206A), range(0xD800, 0xE000))
_PICTURES |= dict.fromkeys((code for codes in _WITHOUT_PICTURE for code in codes), 0xFFFD)


_NOT_UTF_8 = {0xDC00 + byte: f"%{byte:02X}" for byte in range(0x80, 0x100)}


def encodable(text: str) -> str:
    """Return a text with the bytes of a file's name that are not UTF-8 as %E9, so that names stay apart."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.translate(_NOT_UTF_8).encode("utf-8", "replace").decode()
    return text


def visible(text: str) -> str:
    """Return a text with its control characters shown as symbols, so that it cannot command a terminal.

    Local copies of remote files are called by their URLs.
    """
    text = as_called(text)
    return text if text.isprintable() else text.translate(_PICTURES)
