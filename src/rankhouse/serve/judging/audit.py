"""The audit: a line of JSON for each judgement, training, sign-in or wrong key."""

from __future__ import annotations

import os
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from rankhouse.core.errors import OutputFailed
from rankhouse.io.outputs import writing_failures


class Audit:
    """Who did what: judged, undid, trained, signed in, or gave a wrong key.

    Each line is on the disk before the deed is answered.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._guard = path, threading.Lock()
        if path is not None:
            with writing_failures(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))

    def record(self, deed: str, who: str, **facts: object) -> None:
        """Write one line."""
        if self._path is None:
            return
        line = (
            msgspec.json.encode(
                {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "deed": deed,
                    "who": who,
                    **facts,
                }
            )
            + b"\n"
        )
        with self._guard, writing_failures(self._path):
            number = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(number, line)
                os.fsync(number)
            finally:
                os.close(number)

    def note(self, deed: str, who: str, **facts: object) -> None:
        """Write a line of what is done and kept elsewhere; a full disk is told the operator, not the doer."""
        try:
            self.record(deed, who, **facts)
        except OutputFailed as error:
            sys.stderr.write(f"no audit line of {deed} by {who}: {error}\n")
