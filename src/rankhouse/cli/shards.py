"""``--shard`` on the command line: a shard of a command's work."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rankhouse.cli import console
from rankhouse.cli.verb import CommandResult
from rankhouse.jobs.jobs import Job, JobResult, make_shard, manifest_of, read_reports
from rankhouse.jobs.shards import ShardNumber

F = TypeVar("F", bound=Callable[..., Any])


class _ShardNumber(click.ParamType[ShardNumber]):
    name = "i/n"

    def convert(
        self, value: str | ShardNumber, param: click.Parameter | None, ctx: click.Context | None
    ) -> ShardNumber:
        """Read i/n. Args: as in click."""
        del param, ctx
        return value if isinstance(value, ShardNumber) else ShardNumber.parse(value)


def sharded(command: F) -> F:
    """Add --shard."""
    return click.option(
        "--shard",
        type=_ShardNumber(),
        metavar="I/N",
        is_eager=True,  # an output is a folder then, which --out has to know
        help="Do the I-th of N shards only; --out is that shard, for  rankhouse merge.",
    )(command)


def answer_of(result: JobResult) -> CommandResult:
    """Warn as a result says, and return the answer that it is."""
    for warning in result.warnings:
        console.warn(warning)
    return CommandResult(result.facts, result.sentence, result.tables)


def run_shard(job: Job, number: ShardNumber, folder: Path, *, overwrite: bool | None = None) -> CommandResult:
    """Make one shard, and say so."""
    started = time.perf_counter()
    survey = job.survey()
    wanted = manifest_of(job, survey, number.of_total(survey.total), str(number))
    with console.progress(f"{job.command} {number}", None) as show:
        result = make_shard(folder, wanted, job.open, show, overwrite=overwrite)
    if result.reason:
        console.note(f"{folder}: {result.reason}; it was replaced")
    report = read_reports([result.made])[0]
    for warning in report["warnings"]:
        console.warn(warning)
    facts = {"part": str(folder), "shard": str(number)} | wanted.shard._asdict()
    told = f"{wanted}, written to {folder} in {time.perf_counter() - started:.1f} s"
    if result.kept:
        told = f"{folder}: {wanted} is there already, whole and sound; nothing to do"
    return CommandResult(facts | {"unit": job.unit, "kept": result.kept, "report": report}, told)
