"""Readers of corpora that other packages bring, by the ending of the file (docs/extending.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rankhouse.core.errors import BadData, RankhouseError
from rankhouse.core.extensions import entries, load
from rankhouse.core.nouns import Document
from rankhouse.io.duplicate_ids import checked_id
from rankhouse.io.files import kind_of

GROUP = "rankhouse.readers"
"""Entry points named by the ending without its dot; each a function from a path to documents."""


def endings() -> list[str]:
    """List the endings that installed packages read."""
    return [f".{name}" for name in entries(GROUP)]


def has_reader(path: Path) -> bool:
    """Return whether an installed package reads files of this ending."""
    return kind_of(path)[1:] in entries(GROUP)


def documents(path: Path) -> Iterator[tuple[int, Document]]:
    """Stream (place, document) of a file; BadData if the reader fails, or gives something else."""
    ending = kind_of(path)
    try:
        for place, document in enumerate(load(GROUP, ending[1:])(path), 1):
            if not isinstance(document, Document):
                raise BadData(
                    f"the reader of {ending} gave {document!r:.60}; it must give Documents", path, place
                )
            checked_id(document.id, path, place)
            yield place, document
    except (RankhouseError, OSError):
        raise
    except Exception as error:
        reason = (
            f"the reader of {ending} failed ({type(error).__name__}: {error}); mend the file, or the reader"
        )
        raise BadData(reason, path) from error
