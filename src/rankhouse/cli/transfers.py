"""URLs on the command line: fetched before the command's work, uploaded when it ended well.

The types of options (:mod:`rankhouse.cli.options`) put the local path in a URL's place; commands see files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from rankhouse.core.errors import WrongUse, call_path
from rankhouse.io import staging
from rankhouse.io.outputs import only_writer, writing_failures
from rankhouse.io.remote import Listing, Remote
from rankhouse.io.remote_outputs import Output


class Transfers:
    """The remote files of one command."""

    def __init__(self) -> None:
        self._inputs: dict[str, tuple[Remote, Listing]] = {}
        self._outputs: dict[str, tuple[Output, tuple[str, ...]]] = {}

    def input(self, url: str) -> Path:
        """Return where the copy of a file or folder will stand.

        Raises MissingInput where it is not there or may not be read, WrongUse where no file system is known
        for it, or the command writes it.
        """
        remote = Remote.at(url)
        if remote.path in self._outputs:
            raise _both(url)
        files = remote.listing()
        local = staging.copy_of(remote, files)
        self._inputs[remote.path] = (remote, files)
        call_path(local, url)
        return local

    def local_text(self, text: str) -> str:
        """Put local paths in the place of URLs: of the whole text, behind ``NAME=``, or in quotes."""
        return staging.URLS.sub(lambda match: match[0].replace(match[1], str(self.input(match[1]))), text)

    def output(
        self, url: str, ctx: click.Context, *, is_folder: bool | None, reads: tuple[str, ...] = ()
    ) -> Path:
        """Return where a file or folder is to be written before it is uploaded; it is locked.

        Raises WrongUse where the place cannot be written to, or the command reads it.

        Args:
            is_folder: A folder is to be written; None where it may be either.
            reads: Options with which the command needs what the folder holds already; "" stands for always.
        """
        remote = Remote.at(url)
        remote.require_writable()
        if remote.path in self._inputs:
            raise _both(url)
        work = staging.cache_folder() / "out" / remote.key / remote.name
        with writing_failures(work):
            work.parent.mkdir(parents=True, exist_ok=True)
        ctx.with_resource(only_writer(work))
        self._outputs[remote.path] = (Output(remote, work, is_folder), reads)
        call_path(work, url)
        return work

    @contextmanager
    def carried_out(self, params: Mapping[str, Any]) -> Iterator[None]:
        """Fetch, let the block work, upload if it ends well; MissingInput, OutputFailed where that fails."""
        with ExitStack() as stack:
            for remote, files in self._inputs.values():
                stack.enter_context(staging.staged(remote, files))
            for output, reads in self._outputs.values():
                output.reads = any(not name or params.get(name) for name in reads)
                output.resumes = "" in reads
                output.begin()
            try:
                yield
            except click.exceptions.Exit:  # a result, and an exit code that is not 0
                self._upload()
                raise
            self._upload()

    def _upload(self) -> None:
        for output, _ in self._outputs.values():
            output.finish()


def _both(url: str) -> WrongUse:
    return WrongUse(f"{url}: is read and written by this command; it would be lost: name another place")
