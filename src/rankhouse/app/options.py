"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


def as_json(command: F) -> F:
    """Add --json."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Machine-readable result on standard output."
    )(command)


def skip_bad(command: F) -> F:
    """Add --skip-bad."""
    return click.option(
        "--skip-bad",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        metavar="N",
        help="Pass over up to N malformed records and report them.",
    )(command)


def computing(command: F) -> F:
    """Add --precision, --device and --threads."""
    command = click.option(
        "--threads", type=click.IntRange(0), default=0, help="Processor threads; 0 for all."
    )(command)
    command = click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")(command)
    return click.option("--precision", default="auto", show_default=True, help="auto, fp32, bf16 or int8.")(
        command
    )
