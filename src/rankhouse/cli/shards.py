"""``--shard`` on the command line: a shard of a command's work becomes a part."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rankhouse.cli import console
from rankhouse.cli.verb import CommandResult
from rankhouse.jobs.jobs import Job, MergeResult, make_part, part_of, read_reports
from rankhouse.jobs.parts import named
from rankhouse.jobs.slices import Shard

F = TypeVar("F", bound=Callable[..., Any])


class _Shard(click.ParamType[Shard]):
    """i/n."""

    name = "i/n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:  # noqa: ANN401 - as in click
        """Read i/n. Args: as in click."""
        del param, ctx
        return value if isinstance(value, Shard) else Shard.parse(value)


def sharded(command: F) -> F:
    """Add --shard."""
    return click.option(
        "--shard",
        type=_Shard(),
        metavar="I/N",
        is_eager=True,  # an output is a folder then, which --out has to know
        help="Do the I-th of N slices only; --out is a part, for  rankhouse merge.",
    )(command)


def answer_of(result: MergeResult) -> CommandResult:
    """Warn as a result says, and return the answer that it is."""
    for warning in result.warnings:
        console.warn(warning)

    def show() -> None:
        for table in result.tables:
            console.print_table(table)
        console.say(result.sentence)

    return CommandResult(result.facts, show)


def run_shard(job: Job, shard: Shard, folder: Path, *, overwrite: bool = True) -> CommandResult:
    """Make the part of one slice, and say so."""
    started = time.perf_counter()
    survey = job.survey()
    wanted = part_of(job, survey, shard.of_total(survey.total), str(shard))
    with console.progress(f"{job.command} {shard}", None) as show:
        result = make_part(folder, wanted, job.open, show, overwrite=overwrite)
    name = named(wanted.slice, job.unit, str(shard))
    if result.reason:
        console.note(f"{folder}: {result.reason}; it was replaced")
    report = read_reports([result.part])[0]
    for warning in report["warnings"]:
        console.warn(warning)
    facts = {"part": str(folder), "shard": str(shard)} | wanted.slice._asdict()
    told = f"{name}, written to {folder} in {time.perf_counter() - started:.1f} s"
    if result.kept:
        told = f"{folder}: {name} is there already, whole and sound; nothing to do"
    return CommandResult(facts | {"unit": job.unit, "kept": result.kept, "report": report}, told)
