"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rankhouse.core.locks import only_writer
from rankhouse.core.outputs import check_file_target, is_stream

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
_MOST = 2**31 - 1
COUNT, FROM_ZERO, SEED = click.IntRange(1, _MOST), click.IntRange(0, _MOST), click.IntRange(0, 2**32 - 1)


class _Finite(click.ParamType[float]):
    """A number that is neither infinite nor nan."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - as in click
        """Read the number. Args: as in click."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f'"{value}" is no finite number', param, ctx)
        return number


FINITE = _Finite()


PLANNED = "planned"
"""The object of a context that only reads a command line: nothing is written yet, so nothing is looked at."""


class _OutputFile(click.ParamType[Path]):
    """A file to write: looked at before any work is done, and locked until the command ends."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ANN401 - as in click
        """Refuse what no file can be written to, and whatever another process is writing.

        Args: as in click.
        """
        del param
        path = Path(value)
        if ctx is not None and ctx.obj == PLANNED:
            return path
        check_file_target(path)
        if ctx is not None and not ctx.resilient_parsing and not is_stream(path):
            ctx.with_resource(only_writer(path))
        return path


OUTPUT_FILE = _OutputFile()


as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable result on standard output.")
skip_bad = click.option("--skip-bad", type=FROM_ZERO, default=0, show_default=True, metavar="N",
                        help="Pass over up to N malformed records and report them.")  # fmt: skip
relevant_from = click.option("--relevant-from", type=COUNT, default=1, show_default=True, metavar="GRADE",
                             help="The lowest grade that means relevant.")  # fmt: skip
_threads = click.option("--threads", type=FROM_ZERO, default=0, help="Processor threads; 0 for all.")
_device = click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
_precision = click.option("--precision", default="auto", show_default=True, help="auto, fp32, bf16 or int8.")


def computing(command: F) -> F:
    """Add --precision, --device and --threads."""
    return _precision(_device(_threads(command)))
