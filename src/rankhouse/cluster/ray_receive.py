"""Parts that come from workers that do not see the folder of parts: through Ray's memory, piece by piece."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rankhouse.io.outputs import writing_failures
from rankhouse.io.scratch import scratch_folder

PIECE: Final = 32 << 20


class Receiver:
    """Puts one part together from its pieces; whole or absent."""

    def __init__(self, folder: Path, files: tuple[tuple[str, int], ...]) -> None:
        self._folder, self._stack = folder, ExitStack()
        with writing_failures(folder):
            self._scratch = self._stack.enter_context(scratch_folder(folder)) / folder.name
            self._scratch.mkdir()
        self._wanted = self._pieces(files)
        self.wanted: tuple[str, int, int] | None = next(self._wanted, None)
        """The piece to ask for next, as (name, start, size); None once the part is whole."""

    def _pieces(self, files: tuple[tuple[str, int], ...]) -> Iterator[tuple[str, int, int]]:
        for name, size in files:
            for start in range(0, max(size, 1), PIECE):
                yield name, start, min(PIECE, size - start)

    def take(self, content: bytes) -> None:
        """Write the piece that was asked for.

        Raises:
            OutputFailed: The disk is full, or the like.
        """
        assert self.wanted is not None
        path = self._scratch / self.wanted[0]
        with writing_failures(self._folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(content)
        self.wanted = next(self._wanted, None)

    def finish(self) -> None:
        """Put the part in its place, instead of a damaged one that may stand there."""
        with writing_failures(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)
            self._scratch.rename(self._folder)
        self.close()

    def close(self) -> None:
        """Remove whatever was begun."""
        self._stack.close()
