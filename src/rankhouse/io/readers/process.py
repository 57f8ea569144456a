"""Read files in a process of its own, which is ended where a file takes too long or too much memory.

    python -m rankhouse.io.readers.process

One process reads many files; a new one takes its place when it has died, so that no file ends, hangs or
fills the process that asks. Several read many files side by side, ahead of the one that takes what they hold.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from importlib import import_module
from math import inf
from pathlib import Path
from typing import BinaryIO, Final, Self, cast

import msgspec

from rankhouse.core.errors import BadData, RankhouseError, encodable
from rankhouse.io.files import most_bytes
from rankhouse.io.readers.parts import FilePart, squeezed

SECONDS: Final = 60.0
"""Time for a part: a file may take longer as long as more of it comes."""
MEMORY: Final = 3 << 29
"""Bytes of address space that a reader may take."""
AHEAD: Final = 32 << 20
"""Characters that are read before they are taken."""
_MOST: Final = 4  # processes, each of which may take so much memory
_FILES: Final = 16  # a process takes a moment to start, which pays for so many files


class _Request(msgspec.Struct, array_like=True):
    path: bytes
    reader: str
    seconds: float


class _Answer(msgspec.Struct, array_like=True):
    """A part; or the end of the file, with a reason where it cannot be read, and perhaps of the process."""

    part: FilePart | None = None
    fault: str = ""
    is_last: bool = False


_requests, _answers = msgspec.msgpack.Decoder(_Request), msgspec.msgpack.Decoder(_Answer)


class ReaderProcess:
    """Reads files apart from the process that asks; close it in the end."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds, self.started = seconds, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline, self._is_late = inf, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def kill(self) -> None:
        """End the process from another thread than the one that reads."""
        if (process := self._process) is not None:
            process.kill()

    def close(self) -> None:
        """End the process."""
        process, self._process, self._deadline = self._process, None, inf
        if process is not None:
            process.kill()
            process.communicate()

    def parts(self, path: Path, reader: str) -> Iterator[FilePart]:
        """Read a file by module:function of this package.

        Raises BadData where it cannot be read, or takes too long or too much memory.
        """
        (process, requests, answers), is_over, size = self._running(), False, 0
        try:
            request = _Request(os.fsencode(path), reader, self.seconds)
            _send(requests, msgspec.msgpack.encode(request))
            while True:
                self._deadline = time.monotonic() + self.seconds
                raw = _receive(answers)
                self._deadline = inf
                if raw is None:
                    raise BadData(self._end(process), path)
                answer = _answers.decode(raw)
                if answer.part is None:
                    is_over = not answer.is_last
                    if answer.fault:
                        raise BadData(answer.fault, path)
                    return
                size += len(answer.part.text)
                if size > most_bytes():
                    raise BadData(f"holds more than {most_bytes():,} characters of text", path)
                if answer.part.text.strip():
                    yield answer.part
        except BrokenPipeError:
            raise BadData(self._end(process), path) from None
        finally:
            if not is_over:
                self.close()

    def _end(self, process: subprocess.Popen[bytes]) -> str:
        """Say why a process has ended."""
        code = process.wait()
        if self._is_late or code == -24:  # SIGXCPU
            return f"takes longer than {self.seconds:g} s to read"
        return f"ends the program that reads it (exit {code}); open and save it again"

    def _running(self) -> tuple[subprocess.Popen[bytes], BinaryIO, BinaryIO]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._is_late = False
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self.started += 1
            threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()
        return self._process, cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """End the process at its deadline."""
        while process.poll() is None:
            if time.monotonic() > self._deadline and process is self._process:
                self._is_late = True
                process.kill()
            time.sleep(0.1)


class ReadAhead:
    """Files that processes read ahead of the one that takes their parts in order; close it in the end.

    At most ``AHEAD`` characters and a part of each process wait to be taken.

    Args:
        files: Path and reader of each, as :meth:`ReaderProcess.parts` takes them.
        processes: How many read; 0 for as many as pay.
    """

    def __init__(self, files: Sequence[tuple[Path, str]], processes: int = 0) -> None:
        self._files = files
        self._waiting = defaultdict[int, deque[FilePart | Exception | None]](deque)  # of the files at work
        self._changed = threading.Condition()
        self._taken = self._begun = self._held = 0
        self._is_over = False
        pays = min(_MOST, os.cpu_count() or 1, -(-len(files) // _FILES))
        self._readers = [ReaderProcess() for _ in range(processes or pays)]
        self._threads = [
            threading.Thread(target=self._read, args=(apart,), daemon=True) for apart in self._readers
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        for apart, thread in zip(self._readers, self._threads, strict=True):
            while thread.is_alive():
                apart.kill()
                thread.join(0.05)

    def parts(self, number: int) -> Iterator[FilePart]:
        """Yield the parts of a file; those before it are not asked for any more.

        Raises what :meth:`ReaderProcess.parts` does.
        """
        with self._changed:
            for earlier in [one for one in self._waiting if one < number]:
                self._held -= sum(map(_length, self._waiting.pop(earlier)))
            self._taken, waiting = number, self._waiting[number]
            self._changed.notify_all()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: waiting)
                part = waiting.popleft()
                self._held -= _length(part)
                self._changed.notify_all()
            if part is None:
                return
            if isinstance(part, Exception):
                raise part
            yield part

    def _read(self, apart: ReaderProcess) -> None:
        with apart:
            while (number := self._begin()) is not None:
                end: Exception | None = None
                try:
                    for part in apart.parts(*self._files[number]):
                        if not self._put(number, part):
                            break
                except Exception as error:  # noqa: BLE001 - raised where the parts are taken
                    end = error
                self._put(number, end)

    def _begin(self) -> int | None:
        """Return the next file to be read; None where there is none. The first not taken is always begun."""
        with self._changed:
            number = self._begun = max(self._begun, self._taken)
            self._begun += 1
            return None if self._is_over or number >= len(self._files) else number

    def _put(self, number: int, part: FilePart | Exception | None) -> bool:
        """Let a part, or the end of a file, wait to be taken; return whether it will be."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._is_over
                    or number < self._taken
                    or self._held < AHEAD
                    or (number == self._taken and not self._waiting[number])
                )
            )
            if self._is_over or number < self._taken:
                return False
            self._waiting[number].append(part)
            self._held += _length(part)
            self._changed.notify_all()
        return True


def _length(part: FilePart | Exception | None) -> int:
    return len(part.text) if isinstance(part, FilePart) else 0


def _send(stream: BinaryIO, raw: bytes) -> None:
    stream.write(len(raw).to_bytes(8, "big") + raw)
    stream.flush()


def _receive(stream: BinaryIO) -> bytes | None:
    """Return the next message; None at the end."""
    head = stream.read(8)
    size = int.from_bytes(head, "big")
    raw = stream.read(size) if len(head) == 8 else b""
    return raw if len(head) == 8 and len(raw) == size else None


# --- inside the process ------------------------------------------------------------------------------------


def read_parts(path: Path, reader: str) -> Iterator[FilePart]:
    """Read a file in this process; texts as they can be stored."""
    module, _, name = reader.partition(":")
    for part in getattr(import_module(f"rankhouse.io.readers.{module}"), name)(path):
        yield FilePart(encodable(part.text), encodable(part.title), encodable(part.place), part.key)


def _limit(seconds: float) -> None:
    """Let the process end, also where nobody watches it, when it works too long on a part."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # no such limits on Windows
        import resource  # noqa: PLC0415 - of Unix only

        used = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        most = int(used.ru_utime + used.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # as above
        import resource  # noqa: PLC0415 - of Unix only

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Read the files that are asked for, until the parent is gone or memory is short."""
    encode = msgspec.msgpack.encode
    while (raw := _receive(requests)) is not None:
        asked, fault, is_full = _requests.decode(raw), "", False
        path = Path(os.fsdecode(asked.path))
        _limit(asked.seconds)
        try:
            for part in read_parts(path, asked.reader):
                _send(answers, encode(_Answer(part)))
                _limit(asked.seconds)
        except BadData as error:
            fault = error.reason
        except RankhouseError as error:
            fault = str(error).removeprefix(f"{path}: ")
        except MemoryError:
            fault, is_full = f"takes more than {MEMORY >> 20:,} MB of memory to read", True
        except RecursionError:
            fault = "is nested too deep"
        except Exception as error:  # noqa: BLE001 - what libraries raise at damaged files has no end
            text = squeezed(f"{type(error).__name__} {error}")[:160]
            fault = f"is damaged, or of a kind that is not read ({text})"
        _send(answers, encode(_Answer(fault=fault, is_last=is_full)))
        if is_full:
            break


if __name__ == "__main__":
    _limit_memory()
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # what libraries print is no answer
        with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
            serve(sys.stdin.buffer, out)
