"""Carrying a plan out: what is done is kept, what was killed goes on, what changed is made again.

``manifest.json`` says at the end how a result came to be, and what is needed to get it again.
"""

from __future__ import annotations

import contextlib
import io
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

import click
import msgspec

from rankhouse import __version__
from rankhouse.core.errors import BadData, MissingExtra, RankhouseError, WrongUse
from rankhouse.io.checksums import write_checked
from rankhouse.io.decoding import read_cache
from rankhouse.io.outputs import replacing_folder, write_json, writing
from rankhouse.recipes.parse import Recipe
from rankhouse.recipes.plan import SAID, RecipePlan, Task
from rankhouse.recipes.sources import Contents

DONE = "step.json"
HASHES = ".hashes.json"


class Record(
    msgspec.Struct, frozen=True, kw_only=True, rename={"command": "station", "command_line": "command"}
):
    """Record of a task that was done, in the step's folder."""

    step: str
    loop: dict[str, str]  # loop variable -> value
    command: str
    command_line: str  # for the result's folder
    options: dict[str, str]  # all that can change the result, defaults too
    key: str  # the hash of command, options and inputs
    inputs: dict[str, str]  # reference -> identity
    output: str  # what other steps refer to
    files: dict[str, str]  # files in the step's folder -> hash
    started: str  # in UTC
    seconds: float  # of the last start, where an earlier one was killed
    rankhouse: str = __version__  # the version that did it


class State(msgspec.Struct, frozen=True):
    """State of a task."""

    task: Task
    state: Literal["kept", "made", "to do", "data absent"]
    record: Record | None = None


def standing(task: Task, out: Path, contents: Contents) -> State:
    """Return how a task stands, without doing anything."""
    record = read_cache(out / task.folder / DONE, Record)
    if record is not None and _made(task, out, contents) == record.files:  # as they were left
        return State(task, "kept", record)
    return State(task, "data absent" if task.inputs.absent else "to do")


def altered(manifest: Manifest, out: Path) -> list[str]:
    """Read every file of a result again; return a sentence for each that is not as its step left it."""
    records = {path.parent: read_cache(path, Record) for path in sorted(out.rglob(DONE))}
    folders = {record.key: folder for folder, record in records.items() if record is not None}
    faults, contents = [], Contents()
    for record in manifest.steps:
        folder = folders.get(record.key)
        if folder is None:
            faults.append(
                f"{out}: step {record.step} {record.loop or ''}".rstrip() + " has no record of its end"
            )
            continue
        now = contents.files(folder)
        faults += [
            f"{folder / name}: {'was changed' if name in now else 'is missing'}"
            for name, digest in record.files.items()
            if now.get(name) != digest
        ]
    return faults


def carry_out(plan: RecipePlan, out: Path, contents: Contents, say: Callable[[str], None]) -> list[State]:
    """Do every task that is not done, in the result's folder.

    Raises RankhouseError where a command fails, with its step and line; BadData where an input changed while
    a step read it.
    """
    states: list[State] = []
    tasks = list(plan.tasks.values())
    for number, task in enumerate(tasks, 1):
        now = standing(task, out, contents)
        where = f"[{number}/{len(tasks)}] {task.title}"
        if now.state == "to do":
            say(f"{where}: rankhouse {task.command.name}")
            record = _run(plan, task, out, contents)
            say(f"{where}: done in {record.seconds:.1f} s")
            now = State(task, "made", record)
            contents.save()
        else:
            say(f"{where}: {now.state}")
        states.append(now)
    return states


def _made(task: Task, out: Path, contents: Contents) -> dict[str, str]:
    """Return the files of a task's folder with their hashes, but for its record."""
    return {name: digest for name, digest in contents.files(out / task.folder).items() if name != DONE}


def _run(plan: RecipePlan, task: Task, out: Path, contents: Contents) -> Record:
    """Run one command and write its record."""
    started, clock = datetime.now(UTC), time.perf_counter()
    try:
        text = call(task, out)
    except Exception as error:
        fault = of_step(plan, task, error)
        if fault is error:
            raise
        raise fault from error
    return conclude(plan, task, out, contents, called=Call(text, started, time.perf_counter() - clock))


class Call(NamedTuple):
    """A command that was called, and what it wrote to standard output."""

    text: str
    started: datetime
    seconds: float


def call(task: Task, out: Path) -> str:
    """Call a task's command in the result's folder; return what it wrote to standard output.

    Raises RankhouseError where the command fails, click.ClickException where its options are wrong.
    """
    _make_ready(task, out)
    heard = io.StringIO()
    with contextlib.chdir(out), contextlib.redirect_stdout(heard):
        task.command.call(task.arguments)
    return heard.getvalue()


def conclude(plan: RecipePlan, task: Task, out: Path, contents: Contents, called: Call) -> Record:
    """Write down what a task's command made; from now on it is done.

    Raises BadData where an input changed while the step read it, WrongUse where there is no output.
    """
    if called.text:
        with writing(out / task.folder / SAID) as file:
            file.write(called.text)
    for source in task.inputs.sources:
        if not source.unchanged:
            raise BadData(
                f"changed during the run, so what step {task.title} made may be of neither state; "
                "run again to do the step with what is there now",
                source.path,
            )
    if not (out / task.output).exists():
        raise plan.file.lines.fault(
            ("steps", task.step),
            f"step {task.title}: {task.command.name} wrote no {task.output}, which others would refer to",
        )
    record = Record(
        step=task.step,
        loop=dict(task.labels),
        command=task.command.name,
        command_line=task.command_line,
        options=dict(task.options),
        key=task.key,
        inputs=task.inputs.identities,
        output=str(task.output),
        files=_made(task, out, contents),
        started=called.started.isoformat(timespec="seconds"),
        seconds=round(called.seconds, 3),
    )
    write_checked(out / task.folder / DONE, record)
    return record


def _make_ready(task: Task, out: Path) -> None:
    """Clear away what a kill left, unless the command goes on in it; copy what it adds to."""
    folder, output = out / task.folder, out / task.output
    if folder.exists() and (not task.resumes or (folder / DONE).exists()):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if task.copied and not output.exists():
        with replacing_folder(output, lambda there: [there.name]) as temporary:
            shutil.copytree(out / task.copied, temporary, copy_function=_link)


def _link(source: str, target: str) -> None:
    """Link a file, or copy it where the file system cannot."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def of_step(plan: RecipePlan, task: Task, error: Exception) -> Exception:
    """Say which step failed, and where it stands; an error that nobody raised on purpose gets a note."""
    lines = plan.file.lines
    where = lines.where(("steps", task.step))
    if not isinstance(error, RankhouseError | click.ClickException):
        error.add_note(f"in step {task.title}, {where}")
        return error
    message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    wrong = isinstance(error, WrongUse | MissingExtra | click.ClickException)
    text = f"{where}: step {task.title}: {message}"
    return WrongUse(text) if wrong else RankhouseError(text)


MANIFEST = "manifest.json"
_PACKAGES = (
    "rankhouse", "numpy", "scipy", "msgspec", "ir_measures", "torch", "transformers", "tokenizers",
    "faiss-cpu", "ir_datasets",
)  # fmt: skip


class Datum(msgspec.Struct, frozen=True):
    """A data entry, or a file in one, as it was used: by the hash of its content or by its public name."""

    path: str
    identity: str
    absent: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of ``manifest.json``."""

    recipe: Recipe  # as it was resolved, changes laid over it
    file: str  # where it was read from
    smallest: bool
    versions: dict[str, str]  # of packages and Python
    machine: dict[str, str | int]
    data: dict[str, Datum]  # entry -> what was used
    steps: list[Record]  # what was done, in order; absent steps are left out
    absent: list[str]  # steps that could not run


def write_manifest(plan: RecipePlan, states: list[State], out: Path) -> None:
    """Gather what is known of a run, and write ``manifest.json``."""
    used = plan.sources.used
    manifest = Manifest(
        recipe=plan.file.recipe,
        file=str(plan.file.lines.path),
        smallest=plan.file.smallest,
        versions=_versions(),
        machine=_machine(),
        data={source.name: Datum(source.word, source.identity, source.absent) for source in used},
        steps=[state.record for state in states if state.record is not None],
        absent=[state.task.title for state in states if state.record is None],
    )
    write_json(out / MANIFEST, manifest)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _machine() -> dict[str, str | int]:
    seen: dict[str, str | int] = {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
    }
    torch = sys.modules.get("torch")  # only if a step needed it
    if torch is not None and torch.cuda.is_available():
        seen["gpu"] = str(torch.cuda.get_device_name())
    return seen


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
