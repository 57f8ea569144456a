"""By what a machine of a cluster knows that it sees the very folder of the one who asks: a file put there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rankhouse.io.outputs import writing_failures

_NAME: Final = ".here"


@contextmanager
def beacon(folder: Path) -> Iterator[str]:
    """Keep the file in a folder while the block runs; yield what it says.

    Raises:
        OutputFailed: Nobody may write there.
    """
    token = secrets.token_hex(16)
    with writing_failures(folder):
        (folder / _NAME).write_text(token)
    try:
        yield token
    finally:
        with suppress(OSError):
            (folder / _NAME).unlink()


def sees(folder: Path, token: str) -> bool:
    """Return whether a folder of this name is, here, the one in which the file was put."""
    with suppress(OSError):
        return (folder / _NAME).read_text() == token
    return False
