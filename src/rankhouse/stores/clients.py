"""Shared helpers of the adapters: import of a client, explained errors, no secrets in messages."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rankhouse.core.errors import BadData, RankhouseError, StoreFailed, WrongUse, name_few, needs
from rankhouse.stores.store import Store, StoreRecord

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_NO_NAME: Final = re.compile(r"\.\.?|.*[/\\\x00-\x1f\x7f-\x9f\ud800-\udfff].*|", re.DOTALL)
_FULL: Final = ("disk is full", "no space left", "os error 28", "disk i/o error", "quota exceeded")
_UNREACHABLE: Final = (
    *("refused", "timed out", "timeout", "unreachable", "resolve", "name or service", "connect"),
)
_SECRETS: Final = re.compile(r"KEY|TOKEN|PASSWORD|SECRET")
_USERINFO: Final = re.compile(r"(?<=://)[^/@\s]+@")
_ADDRESS: Final = re.compile(r"[A-Za-z][\w+.-]+:/.*|[\w.-]+:\d{1,5}(/.*)?|\[[0-9A-Fa-f:.]+\](:\d+)?(/.*)?")
_GIVEN: Final = re.compile(
    r"((?:password|api_?key|token|secret)\w*\s*=\s*)('[^']*'|\"[^\"]*\"|[^\s,)'\"]+)", re.IGNORECASE
)


def library(module: str, store: str, extra: str) -> Any:  # noqa: ANN401 - clients are typed to varying degrees
    """Import a client library, or raise MissingExtra."""
    with needs(extra, f"the store {store}"):
        return import_module(module)


def masked(text: str) -> str:
    """Return a message without what may be a secret: users of URLs, passwords, the environment's keys."""
    for name, value in os.environ.items():
        if _SECRETS.search(name.upper()) and len(value) >= 4:
            text = text.replace(value, "***")
    return _GIVEN.sub(r"\1***", _USERINFO.sub("***@", text))


def without_user(url: str, how: str) -> str:
    """Return an address; refuse one that holds a password, which would stand in histories and logs."""
    if _USERINFO.search(url) or _GIVEN.search(url):
        raise WrongUse(f"{masked(url)}: leave name and password out of the address; {how}")
    return url


def folder_or_file(store: str, where: str, instead: str) -> str:
    """Return a local place; refuse what looks like an address and is not there under this name."""
    if _ADDRESS.fullmatch(where) and not Path(where).exists():
        raise WrongUse(f"{store}({masked(where)!r}): is no address that can be asked; {instead}")
    return where


def unmade(where: str) -> Path | None:
    """Return a local folder that opening the store will make; None where it is there already."""
    return None if Path(where).exists() else Path(where)


def remove_unused(folder: Path | None, own: Sequence[str] = ()) -> None:
    """Remove a folder that opening a store made, if all that it holds are its own files and empty folders.

    To be called before the store lets go of its lock: another process may wait for it to fill the folder.
    """
    if folder is None or not folder.is_dir():
        return
    found = sorted(folder.rglob("*"), reverse=True)  # what is within a folder before it
    folders = [path for path in found if path.is_dir() and not path.is_symlink()]
    files = [path for path in found if path not in folders]
    if all(str(path.relative_to(folder)) in own for path in files):
        with suppress(OSError):
            for file in files:
                file.unlink()
            for inner in (*folders, folder):
                inner.rmdir()


def whole_numbers(doc_ids: Iterable[str]) -> list[int]:
    """Return those ids that are whole numbers, as such: another program's field may hold numbers."""
    return [int(doc_id) for doc_id in doc_ids if _WHOLE.fullmatch(doc_id)]


@contextmanager
def explained(name: str, *faults: type[Exception]) -> Iterator[None]:
    """Turn a client's exceptions into a StoreFailed that names the store, without a secret in it."""
    try:
        yield
    except RankhouseError:
        raise
    except faults as error:
        lines = [line.strip() for line in f"{error} {_reason(error)}".splitlines() if line.strip()]
        message = masked(" ".join(lines)[:400]) or type(error).__name__
        advice = ""
        if getattr(error, "errno", None) == errno.ENOSPC or any(sign in message.lower() for sign in _FULL):
            advice = "; the disk is full: free some space and push again, which resumes"
        elif isinstance(error, ConnectionError | TimeoutError) or any(
            s in message.lower() for s in _UNREACHABLE
        ):
            advice = "; is the server running, and is its address right?"
        raise StoreFailed(f"{name}: {message}{advice}") from None


def _reason(error: Exception) -> str:
    """Return the reason in the answer of a search engine, which its client's message leaves out."""
    answer = getattr(error, "info", None) or getattr(error, "body", None)
    fault = answer.get("error") if isinstance(answer, dict) else None
    return str(fault.get("reason", "")) if isinstance(fault, dict) else ""


@contextmanager
def silent(*loggers: str) -> Iterator[None]:
    """Keep clients' logs to themselves while the block runs: what goes wrong is raised, and said once."""
    before = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def check_name(store: str, what: str, name: str, pattern: str, accepted: str) -> None:
    """Refuse a collection's name that leads elsewhere, or that does not match what the store accepts."""
    if _NO_NAME.fullmatch(name):
        raise WrongUse(
            f"{store}({what}={name!r}): is no name for a {what}, whose folder it names; {accepted}"
        )
    if not re.fullmatch(pattern, name):
        raise WrongUse(f"{store}({what}={name!r}): {accepted}")


def refuse_foreign(store: str, folder: Path, own: Callable[[str], bool]) -> None:
    """Refuse to fill or to remove a collection's folder that holds names which its engine does not give."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    if foreign := sorted(name for name in names if not own(name)):
        raise WrongUse(
            f"{store}: {folder} holds something else ({name_few(foreign)}), which is never replaced; name "
            "another collection, or move it away"
        )


def check_room(store: str, folder: Path, needed: int) -> None:
    """Refuse to write about so many bytes where they do not fit.

    For an engine that writes into mapped files: a disk that is full then ends the process with a signal.
    """
    left = shutil.disk_usage(folder).free
    if left < needed:
        raise StoreFailed(
            f"{store}: the disk is full: {left / 2**20:.1f} MiB are left where {needed / 2**20:.1f} MiB are "
            "needed; free some space and push again, which resumes"
        )


def too_long(store: Store, record: StoreRecord, size: int, most: int) -> BadData:
    """Return the error for a text that does not fit."""
    return BadData(
        f'{store.name}: document "{record.doc_id}" has {size:,} bytes of text, and a field there holds at '
        f"most {most:,}; push with --no-texts and keep the texts elsewhere, or cut the documents "
        "before indexing"
    )
