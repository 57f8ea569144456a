"""Every error this house raises on purpose, and the one kind of warning.

RankhouseError
├── WrongUse          a name, an option or an argument that is not accepted       (exit code 2)
├── BadData           the content of an input file: says file, line, reason, mend
│   └── DuplicateId   an id that was already taken
├── MissingInput      a file or folder that is not there
├── BadIndex          an index folder that is damaged, foreign, half-written or of another version
├── BadModel          a model folder or checkpoint that cannot be used
├── MissingExtra      a feature whose optional packages are not installed
└── OutputFailed      the result could not be written (no permission, disk full)

RankhouseWarning      work goes on, but the user should know
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RankhouseError(Exception):
    """Any fault this house explains; the message says what, where and what to do next.

    >>> import rankhouse as rh
    >>> try:
    ...     rh.read_run("absent.run")
    ... except rh.RankhouseError as error:
    ...     print(error)
    absent.run: there is no such file...
    """


class WrongUse(RankhouseError, ValueError):
    """A name, an option or an argument that is not accepted."""


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
    """An id that an earlier record already has."""


class MissingInput(RankhouseError, FileNotFoundError):
    """A file or folder that is not there."""


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


class OutputFailed(RankhouseError, OSError):
    """A result could not be written; whatever stood there before still does."""


class RankhouseWarning(UserWarning):
    """Work goes on, but something the user should know was seen.

    >>> import rankhouse as rh, warnings
    >>> warnings.simplefilter("error", rh.RankhouseWarning)  # stop at whatever would be a warning
    """


_REFUSALS = {
    errno.ENOSPC: "the disk is full; free some space or write elsewhere",
    errno.EDQUOT: "the disk quota is used up; free some space or write elsewhere",
    errno.EFBIG: "the file would be larger than is allowed; write elsewhere or raise the limit",
    errno.EACCES: "there is no permission to write there",
    errno.EPERM: "there is no permission to write there",
    errno.EROFS: "the file system is read-only; write elsewhere",
    errno.ENOENT: "the folder does not exist and could not be made",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a part of the path is a file, not a folder",
    errno.EISDIR: "a folder of that name is in the way",
    errno.ELOOP: "its links lead in a circle",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


def real_path(path: Path) -> Path:
    """Return where a path leads to when all links are followed; what is missing may still be made.

    Raises:
        OutputFailed: Links lead in a circle, or the name is too long.
    """
    with writing_failures(path):
        try:
            real = path.resolve()
            real.exists()
        except RuntimeError as error:  # how Python before 3.13 says it
            raise OSError(errno.ELOOP, str(error)) from error
    return real


@contextmanager
def writing_failures(path: Path) -> Iterator[None]:
    """Turn an operating system's refusal to write into an error that names the target.

    Args:
        path: What was to be written; a refusal that comes without a number (numpy's "126427 requested and
            41952 written") is a full disk.

    Raises:
        OutputFailed: The block raised an OSError.
    """
    try:
        yield
    except RankhouseError:
        raise
    except OSError as error:
        short = error.errno is None and "requested" in str(error)
        reason = _REFUSALS.get(errno.ENOSPC if short else error.errno or 0, error.strerror or str(error))
        raise OutputFailed(f"{path}: cannot be written: {reason}; nothing was changed") from error
