"""The ending of a file says what is written into it."""

from __future__ import annotations

from pathlib import Path

from rankhouse.core.errors import WrongUse


def ending_of(path: Path, what: str, *endings: str) -> str:
    """Return a file's ending, one of those that something can be written as.

    Args:
        what: What is written, with its verb, for the message: "charts are".
        endings: Two or more of ".html", ".md" ..., in lower case.

    Raises:
        WrongUse: It has another one.
    """
    ending = path.suffix.lower()
    if ending not in endings:
        named = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise WrongUse(f'"{path}": {what} written as {named}; give the file one of these endings')
    return ending
