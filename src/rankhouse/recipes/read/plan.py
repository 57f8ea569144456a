"""From a recipe to tasks: every pass of every step with its command line, its key and its folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from rankhouse import __version__
from rankhouse.core.errors import WrongUse
from rankhouse.recipes.read import commands
from rankhouse.recipes.read.bounds import OWN_FILE, Bounds
from rankhouse.recipes.read.lines import RecipeFault
from rankhouse.recipes.read.loops import Loops, Pass, labels_of, said
from rankhouse.recipes.read.parse import RecipeFile, label
from rankhouse.recipes.read.references import Reference, references, resolve
from rankhouse.recipes.read.schema import Step
from rankhouse.recipes.read.sources import Input, Sources

WORK = "work"
SAID = "said.json"
_PLAIN = re.compile(r"[^\w.=+-]+")


@dataclass(frozen=True)
class Task:
    """One pass of a step.

    Attributes:
        labels: (loop variable, short name of its value), in the order of [loop].
        arguments: The command's words, with paths relative to the result's folder.
        options: Every option that can change the result, with its value; inputs as hashes.
        key: Ten hexadecimal digits: the hash of command, options and inputs.
        folder: Where it works, relative to the result's folder.
        output: What others refer to, relative as well.
        inputs: Reference -> its identity.
        needs: The tasks it reads, by pass.
        absent: Why it cannot run; empty if it can.
        output_rules: How its command behaves.
        program: Has the command.
        copied: The folder it adds to a copy of; "" for commands that write anew.
    """

    step: str
    labels: tuple[tuple[str, str], ...]
    command: str
    arguments: tuple[str, ...]
    options: Mapping[str, str]
    key: str
    folder: Path
    output: Path
    inputs: Mapping[str, str]
    sources: tuple[Input, ...]
    needs: tuple[Pass, ...]
    absent: tuple[str, ...]
    output_rules: commands.OutputRules
    program: commands.Program
    copied: str = ""

    @property
    def which(self) -> Pass:
        """Step and labels."""
        return (self.step, self.labels)

    @property
    def title(self) -> str:
        """Step and labels for people."""
        return f"{self.step} {said(self.labels)}".strip()

    @property
    def command_line(self) -> str:
        """The command line as one would type it in the result's folder."""
        line = commands.shown(self.command, list(self.arguments))
        return f"cp -al {self.copied} {self.output} && {line}" if self.copied else line


@dataclass(frozen=True)
class Plan:
    """All tasks, in the order of work: those that others need first, one value of a loop after the other."""

    file: RecipeFile
    loops: Loops
    sources: Sources
    tasks: Mapping[Pass, Task]

    @property
    def absent(self) -> list[str]:
        """What is not there, each said once."""
        return list(dict.fromkeys(reason for task in self.tasks.values() for reason in task.absent))


def make_plan(file: RecipeFile, sources: Sources, out: Path, program: commands.Program) -> Plan:
    """Make the tasks of a recipe; reads data to hash it, runs nothing.

    Raises:
        WrongUse: Whatever is wrong with a step, with its line.
    """
    loops = Loops(file)
    maker = _Maker(file, loops, sources, out, program=program)
    for step in file.recipe.steps:
        maker.make(step)
    return Plan(file, loops, sources, _depth_first(maker.tasks, file.recipe.loop))


def _depth_first(tasks: Mapping[Pass, Task], loops: Mapping[str, Sequence[Any]]) -> dict[Pass, Task]:
    """Order tasks so that a stopped run has finished values of its outer loops, not a bit of every value.

    What nobody needs comes in the order of the loops, the first variable of [loop] the outermost, each after
    all that it needs.
    """
    places = {name: {label(value): i for i, value in enumerate(values)} for name, values in loops.items()}

    def place(which: Pass) -> tuple[int, ...]:
        labels = dict(which[1])
        return tuple(own[labels[name]] if name in labels else len(own) for name, own in places.items())

    ordered: dict[Pass, Task] = {}

    def take(which: Pass) -> None:
        if which not in ordered:
            for need in sorted(tasks[which].needs, key=place):
                take(need)
            ordered[which] = tasks[which]

    needed = {need for task in tasks.values() for need in task.needs}
    for which in sorted((which for which in tasks if which not in needed), key=place):
        take(which)
    return ordered


class _Maker:
    def __init__(
        self, file: RecipeFile, loops: Loops, sources: Sources, out: Path, program: commands.Program
    ) -> None:
        self._file, self._lines, self._loops, self._sources = file, file.lines, loops, sources
        self._bounds, self._program = Bounds(file.lines, out, program), program
        self._made: set[str] = set()
        self.tasks: dict[Pass, Task] = {}

    def make(self, name: str) -> None:
        """Make all passes of a step, after those of the steps it needs."""
        if name in self._made:
            return
        self._made.add(name)
        step = self._file.recipe.steps[name]
        command = self._opened(name, step)
        for bindings in self._loops.passes(self._loops.members(name)):
            filled = {
                key: self._loops.fill(value, bindings, ("steps", name, key))
                for key, value in step.options.items()
            }
            for reference in references(filled):
                if reference.name not in self._sources:
                    self.make(reference.name)
            task = self._task(name, step, command, filled, bindings=bindings)
            self.tasks[task.which] = task

    def _opened(self, name: str, step: Step) -> click.Command:
        try:
            command = commands.open_command(self._program, step.command)
        except WrongUse as error:
            raise self._lines.fault(("steps", name, "command"), str(error)) from error
        for key in step.options:
            try:
                commands.parameter_of(command, key)
            except WrongUse as error:
                raise self._lines.fault(("steps", name, key), str(error)) from error
        return command

    def _task(
        self, name: str, step: Step, command: click.Command, filled: dict[str, Any], bindings: dict[str, Any]
    ) -> Task:
        output_rules = commands.output_rules(command, filled)
        gathered = _TaskInputs()
        self._refuse_literal_paths(name, command, filled)
        # First with hashes in place of paths: that is what the key is made of, and the key names the folder.
        hashed = _placed(self._resolved(name, filled, bindings, gathered, hashes=True), Path())
        options = commands.telling(command, self._check(name, command, hashed))
        key = _key(step.command, options)
        which = "".join(f".{_PLAIN.sub('-', f'{n}={v}')[:40]}" for n, v in labels_of(bindings))
        folder = Path(WORK) / f"{name}{which}-{key}"
        output = folder / (step.out or f"{name}{output_rules.suffix}")
        if not commands.takes(command, "out") and not output_rules.adds_to:
            output = folder / SAID
        self._bounds.check(name, command, filled, folder)
        real = _placed(self._resolved(name, filled, bindings, _TaskInputs()), folder)
        copied = ""
        if output_rules.adds_to:
            copied, real[output_rules.adds_to] = str(real[output_rules.adds_to]), str(output)
        arguments = self._arguments(name, command, real, None if output_rules.adds_to else output)
        return Task(
            step=name,
            labels=labels_of(bindings),
            command=step.command,
            arguments=tuple(arguments),
            options=options,
            key=key,
            folder=folder,
            output=output,
            inputs=gathered.inputs,
            sources=tuple(gathered.sources),
            needs=tuple(gathered.needs),
            absent=tuple(dict.fromkeys(gathered.absent)),
            output_rules=output_rules,
            program=self._program,
            copied=copied,
        )

    def _resolved(
        self,
        name: str,
        filled: dict[str, Any],
        bindings: dict[str, Any],
        gathered: _TaskInputs,
        hashes: bool = False,
    ) -> dict[str, Any]:
        """Put paths, or hashes, in for references."""

        def look_up(reference: Reference) -> list[str]:
            if reference.name in self._sources:
                source = self._sources.find(reference.name, reference.inner)
                gathered.source(reference, source)
                return [source.identity if hashes else source.word]
            tasks = [self.tasks[one] for one in self._loops.targets(reference, bindings)]
            for task in tasks:
                gathered.task(reference, task)
            where = [f"step {task.key}" if hashes else str(task.output) for task in tasks]
            return [f"{one}/{reference.inner}" if reference.inner else one for one in where]

        options = {}
        for key, value in filled.items():
            try:
                options[key] = resolve(value, look_up)
            except RecipeFault:
                raise
            except WrongUse as error:
                raise self._lines.fault(("steps", name, key), str(error)) from error
        return options

    def _check(self, name: str, command: click.Command, options: dict[str, Any]) -> dict[str, Any]:
        arguments = self._arguments(name, command, options, Path(name))
        try:
            return self._program.read(command, arguments)
        except click.UsageError as error:
            key = commands.key_of(command, error)
            accepted = ", ".join(commands.named(command))
            place = ("steps", name, *self._written_as(name, key))
            raise self._lines.fault(
                place, f'step "{name}": {error.format_message()} (options of {command.name}: {accepted})'
            ) from error

    def _arguments(
        self, name: str, command: click.Command, options: dict[str, Any], out: Path | None
    ) -> list[str]:
        """Write a step's options as words, with its output if any; a fault says the line of its key."""
        for key, value in options.items():
            try:
                commands.words(command, {key: value})
            except WrongUse as error:
                raise self._lines.fault(("steps", name, *self._written_as(name, key)), str(error)) from error
        words = commands.words(command, options)
        return ["--out", str(out), *words] if out and commands.takes(command, "out") else words

    def _written_as(self, name: str, key: str) -> tuple[str, ...]:
        """Return a key as the recipe writes it, with dashes perhaps."""
        options = self._file.recipe.steps[name].options
        return next(((option,) for option in options if option.replace("-", "_") == key), ())

    def _refuse_literal_paths(self, name: str, command: click.Command, filled: dict[str, Any]) -> None:
        for key, value in filled.items():
            parameter = commands.parameter_of(command, key)
            for text in value if isinstance(value, list) else [value]:
                free = (
                    not isinstance(text, str)
                    or text.startswith(OWN_FILE)
                    or commands.writes(self._program, parameter)
                )
                if free or references(text):
                    continue
                if commands.names_a_file(parameter, text, self._file.folder):
                    raise self._lines.fault(
                        ("steps", name, key),
                        f'"{text}" comes from outside; name it under [data] and refer to it as "@name" '
                        '(a file the step writes beside its output is "./name")',
                    )


class _TaskInputs:
    """What a task reads."""

    def __init__(self) -> None:
        self.inputs: dict[str, str] = {}
        self.sources: list[Input] = []
        self.needs: list[Pass] = []
        self.absent: list[str] = []

    def source(self, reference: Reference, entry: Input) -> None:
        self.inputs[reference.text] = entry.identity
        self.sources.append(entry)
        if entry.absent:
            self.absent.append(entry.absent)

    def task(self, reference: Reference, task: Task) -> None:
        named = f"@{task.title}" if reference.collects else reference.text
        self.inputs[named] = f"step {task.key}"
        self.needs.append(task.which)
        self.absent += task.absent


def _placed(value: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Put a step's own files, "./name", into its folder."""

    def one(text: Any) -> Any:  # noqa: ANN401 - anything TOML holds
        own = isinstance(text, str) and text.startswith(OWN_FILE)
        return str(folder / text.removeprefix(OWN_FILE)) if own else text

    return {k: [one(v) for v in text] if isinstance(text, list) else one(text) for k, text in value.items()}


def _key(command: str, options: Mapping[str, str]) -> str:
    """Hash what decides a result; another version of this package may decide otherwise."""
    said_all = msgspec.json.encode([__version__, command, sorted(options.items())])
    return hashlib.sha256(said_all).hexdigest()[:10]
