"""From a recipe to tasks: every pass of every step, its command line, key, folder, and paths it may name."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from rankhouse import __version__
from rankhouse.recipes.commands import CACHE, CommandSet, StepCommand
from rankhouse.recipes.loops import Bindings, Loops, Pass, Reference, labels_of, references, resolve, said
from rankhouse.recipes.parse import RecipeFile, Step, label
from rankhouse.recipes.sources import Input, Sources

WORK = "work"
SAID = "said.json"
_PLAIN = re.compile(r"[^\w.=+-]+")


@dataclass
class TaskInputs:
    """Inputs of a task."""

    identities: dict[str, str] = field(default_factory=dict)  # reference -> hash, or public name
    sources: list[Input] = field(default_factory=list)
    needs: list[Pass] = field(default_factory=list)  # the tasks it refers to
    absent: list[str] = field(default_factory=list)  # why it cannot run


@dataclass(frozen=True)
class Task:
    """One pass of a step."""

    step: str
    labels: tuple[tuple[str, str], ...]  # loop variable, short name of its value; in the order of [loop]
    command: StepCommand
    arguments: tuple[str, ...]  # the command's words, with paths relative to the result's folder
    options: Mapping[str, str]  # every option that can change the result, with its value; inputs as hashes
    key: str  # ten hexadecimal digits: the hash of command, options and inputs
    folder: Path  # where it works, relative to the result's folder
    output: Path  # what others refer to, relative as well
    inputs: TaskInputs
    resumes: bool  # its command goes on by itself in what a kill left
    copied: str = ""  # the folder it adds to a copy of; "" for commands that write a new one

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
        line = shlex.join(["rankhouse", self.command.name, *self.arguments])
        return f"cp -al {self.copied} {self.output} && {line}" if self.copied else line


@dataclass(frozen=True)
class RecipePlan:
    """All tasks, in the order of work: those that others need first, one value of a loop after the other."""

    file: RecipeFile
    loops: Loops
    sources: Sources
    tasks: Mapping[Pass, Task]

    @property
    def absent(self) -> list[str]:
        """Missing inputs, each named once."""
        return list(dict.fromkeys(reason for task in self.tasks.values() for reason in task.inputs.absent))


def make_plan(file: RecipeFile, sources: Sources, out: Path, program: CommandSet) -> RecipePlan:
    """Make the tasks of a recipe; reads data to hash it, runs nothing. A fault says the line."""
    loops = Loops(file)
    maker = _Maker(file, loops, sources, out, program=program)
    for step in file.recipe.steps:
        maker.make(step)
    return RecipePlan(file, loops, sources, _depth_first(maker.tasks, file.recipe.loop))


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
            for need in sorted(tasks[which].inputs.needs, key=place):
                take(need)
            ordered[which] = tasks[which]

    needed = {need for task in tasks.values() for need in task.inputs.needs}
    for which in sorted((which for which in tasks if which not in needed), key=place):
        take(which)
    return ordered


class _Maker:
    def __init__(
        self, file: RecipeFile, loops: Loops, sources: Sources, out: Path, program: CommandSet
    ) -> None:
        self._file, self._lines, self._loops, self._sources = file, file.lines, loops, sources
        self._bounds, self._program = Bounds(file, out), program
        self._made: set[str] = set()
        self.tasks: dict[Pass, Task] = {}

    def make(self, name: str) -> None:
        """Make all passes of a step, after those of the steps it needs."""
        if name in self._made:
            return
        self._made.add(name)
        step = self._file.recipe.steps[name]
        with self._lines.naming(("steps", name, "command")):
            command = StepCommand(self._program, step.command)
        for key in step.options:
            with self._lines.naming(("steps", name, key)):
                command.parameter(key)
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

    def _task(
        self, name: str, step: Step, command: StepCommand, filled: dict[str, Any], bindings: dict[str, Any]
    ) -> Task:
        rules, labels, inputs = command.rules(filled), labels_of(bindings), TaskInputs()
        self._bounds.check_read(name, command, filled)
        found = {one: self._find(one, bindings, inputs) for one in references(filled)}
        # First with hashes in place of paths: that is what the key is made of, and the key names the folder.
        hashes = {reference: [one for one, _ in both] for reference, both in found.items()}
        options = self._read(name, command, self._resolved(name, filled, hashes, Path()))
        key = _key(step.command, options)
        which = "".join(f".{_PLAIN.sub('-', f'{n}={v}')[:40]}" for n, v in labels)
        folder = Path(WORK) / f"{name}{which}-{key}"
        output = folder / (step.out or f"{name}{rules.suffix}")
        if not command.takes("out") and not rules.adds_to:
            output = folder / SAID
        self._bounds.check_written(name, command, filled, folder)
        paths = {reference: [one for _, one in both] for reference, both in found.items()}
        real = self._resolved(name, filled, paths, folder)
        copied = ""
        if rules.adds_to:
            copied, real[rules.adds_to] = str(real[rules.adds_to]), str(output)
        return Task(
            step=name,
            labels=labels,
            command=command,
            arguments=tuple(self._arguments(name, command, real, None if rules.adds_to else output)),
            options=options,
            key=key,
            folder=folder,
            output=output,
            inputs=inputs,
            resumes=rules.resumes,
            copied=copied,
        )

    def _find(self, reference: Reference, bindings: Bindings, inputs: TaskInputs) -> list[tuple[str, str]]:
        """Note what a reference stands for; return identity and path of each thing."""
        if reference.name in self._sources:
            source = self._sources.find(reference.name, reference.inner)
            inputs.identities[reference.text] = source.identity
            inputs.sources.append(source)
            inputs.absent += [source.absent] if source.absent else []
            return [(source.identity, source.word)]
        inner, found = f"/{reference.inner}" if reference.inner else "", []
        for which in self._loops.targets(reference, bindings):
            task = self.tasks[which]
            named = f"@{task.title}" if reference.collects else reference.text
            inputs.identities[named] = f"step {task.key}"
            inputs.needs.append(which)
            inputs.absent += task.inputs.absent
            found.append((f"step {task.key}{inner}", f"{task.output}{inner}"))
        return found

    def _resolved(
        self, name: str, filled: dict[str, Any], found: Mapping[Reference, list[str]], folder: Path
    ) -> dict[str, Any]:
        """Put what was found in for references, and a step's own files, "./name", into its folder."""

        def placed(value: Any) -> Any:  # noqa: ANN401 - anything TOML holds
            own = isinstance(value, str) and value.startswith(OWN_FILE)
            return str(folder / value.removeprefix(OWN_FILE)) if own else value

        options = {}
        for key, value in filled.items():
            with self._lines.naming(("steps", name, key)):
                whole = resolve(value, found.__getitem__)
            options[key] = [placed(one) for one in whole] if isinstance(whole, list) else placed(whole)
        return options

    def _read(self, name: str, command: StepCommand, options: dict[str, Any]) -> dict[str, str]:
        """Let the command check a step's options; return those that can change the result."""
        arguments = self._arguments(name, command, options, Path(name))
        try:
            return command.telling(command.read(arguments))
        except click.UsageError as error:
            key, own = command.key_of(error), self._file.recipe.steps[name].options
            written = next((one for one in own if one.replace("-", "_") == key), key)
            raise self._lines.fault(
                ("steps", name, written),
                f'step "{name}": {error.format_message()} '
                f"(options of {command.name}: {', '.join(command.keys)})",
            ) from error

    def _arguments(
        self, name: str, command: StepCommand, options: dict[str, Any], out: Path | None
    ) -> list[str]:
        """Write a step's options as words, with its output if any; a fault says the line of its key."""
        for key, value in options.items():
            with self._lines.naming(("steps", name, key)):
                command.words({key: value})
        words = command.words(options)
        return ["--out", str(out), *words] if out and command.takes("out") else words


def _key(command: str, options: Mapping[str, str]) -> str:
    """Hash what decides a result; another version of this package may decide otherwise."""
    said_all = msgspec.json.encode([__version__, command, sorted(options.items())])
    return hashlib.sha256(said_all).hexdigest()[:10]


# A recipe may come from anybody, so what its steps write beside their outputs is checked before anything
# runs: ``./name`` stays in the step's own folder, and a cache in the result's; also where symbolic links lie
# on the way. What is read may be anywhere.

OWN_FILE = "./"
"""Prefix of the name of a file that a step writes beside its output."""


class Bounds:
    """Refuses paths in the options of steps, with the line."""

    def __init__(self, file: RecipeFile, out: Path) -> None:
        self._lines, self._folder, self._out = file.lines, file.folder, out

    def check_read(self, step: str, command: StepCommand, options: Mapping[str, Any]) -> None:
        """Refuse literal paths of what is read: recipes name such files under [data]."""
        for key, text in _texts(options):
            if text.startswith(OWN_FILE) or command.writes(key) or references(text):
                continue
            if command.names_a_file(key, text, self._folder):
                raise self._lines.fault(
                    ("steps", step, key),
                    f'"{text}" comes from outside; name it under [data] and refer to it as "@name" '
                    '(a file the step writes beside its output is "./name")',
                )

    def check_written(
        self, step: str, command: StepCommand, options: Mapping[str, Any], folder: Path
    ) -> None:
        """Refuse paths of what is written that lead out of the step's folder (a cache: of the result's)."""
        for key, text in _texts(options):
            place = ("steps", step, key)
            if text.startswith(OWN_FILE):
                self._refuse_outside(place, text, text.removeprefix(OWN_FILE), folder)
            elif not command.writes(key):
                continue
            elif references(text):
                raise self._lines.fault(
                    place,
                    f'"{text}" would write into data or into the output of another step; write "./name" for '
                    "a file beside the step's own output",
                )
            elif key != CACHE:
                raise self._lines.fault(
                    place,
                    f'"{text}" would be written outside the step\'s folder; write "./name" for a file beside '
                    "its output",
                )
            elif not self._lines.by_hand(place):  # the person at the keyboard may share scores among results
                self._refuse_outside(place, text, text, Path())

    def _refuse_outside(self, place: tuple[str, str, str], text: str, inner: str, folder: Path) -> None:
        """Refuse a path that leaves a folder of the result, by its name or by a symbolic link."""
        path = Path(inner)
        base = self._out.resolve() / folder
        named_outside = path.is_absolute() or ".." in path.parts or inner.startswith("~")
        if named_outside or not (base / path).resolve().is_relative_to(base):
            whose = "the result's folder" if folder == Path() else "the step's folder"
            by_hand = f"; a cache elsewhere can be given by hand:  --set {'.'.join(place)}=PATH"
            hint = by_hand if place[-1] == CACHE else ""
            raise self._lines.fault(
                place, f'"{text}" leads out of {whose}; give a name inside it, without "..", "/" or "~"{hint}'
            )


def _texts(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Stream (key, text) of options, those in lists too."""
    for key, value in options.items():
        texts = value if isinstance(value, list) else [value]
        yield from ((key, text) for text in texts if isinstance(text, str))
