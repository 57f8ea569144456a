"""Commands as steps: a step's keys are checked by the command's own options, and become its words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import click

from rankhouse.core.errors import RankhouseError, WrongUse, did_you_mean
from rankhouse.core.notation import canonical
from rankhouse.index.lexical.feedback import FEEDBACKS
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.systems.notation import system
from rankhouse.systems.short_forms import first_stage

_REPORTED = frozenset({"alone", "shown"})  # neutral, but they change a step's report: its times, its page
_NEUTRAL_SETTING = "device="
"""How what a ``set`` says of no result begins; options say it themselves."""

# What a store holds changes without a recipe seeing it.
_NOT_STEPS = frozenset({"run", "serve", "up", "doctor", "export", "push", "pull"})
CACHE = "cache"
"""The one option that names a folder several steps may write into."""
_RUNNERS_OWN = frozenset({"out", "json", "help"})
_REFUSED = {
    "append": "an index of several corpora is one step with a list: corpus = [...]",
    **dict.fromkeys(("update", "delete", "upgrade"), "a step makes an index, and changes none"),
    "overwrite": "each step writes into a folder of its own",
}
_NOTATIONS: Mapping[str, Callable[[str], object]] = {
    "system": system,
    "models": first_stage,
    "feedback": lambda text: canonical(text, FEEDBACKS, "feedback"),
    "fusion": lambda text: canonical(text, FUSIONS, "method of fusion"),
}
"""Options whose text is read before anything runs; step by step, a fault would be found hours later."""


class CommandSet(Protocol):
    """The commands that steps may call, handed in by the command line; pickled for other machines."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all commands."""
        ...

    def command(self, name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        ...

    def read(self, command: click.Command, arguments: Sequence[str]) -> dict[str, Any]:
        """Let a command read its words; return every option with its value, defaults too.

        Raises click.UsageError for what the command would refuse.
        """
        ...

    def writes(self, parameter: click.Parameter) -> bool:
        """Return whether an option names a file that the command writes."""
        ...

    def is_neutral(self, parameter: click.Parameter) -> bool:
        """Return whether an option changes no result; the key of a step leaves it out."""
        ...


@dataclass(frozen=True)
class OutputRules:
    """Facts about a command that the runner needs beyond its options."""

    suffix: str = ""  # ending of its output's name; "" for a folder
    resumes: bool = False  # it goes on by itself in what a kill left
    adds_to: str = ""  # the option that names a folder it adds to, in place of an output


OUTPUT_RULES: dict[str, OutputRules] = {
    "search": OutputRules(".run"),
    "rerank": OutputRules(".run"),
    "fuse": OutputRules(".run"),
    "combine": OutputRules(".run"),
    "folds": OutputRules(".json"),
    "threshold": OutputRules(".json"),
    "label-noise": OutputRules(".qrels"),
    "label": OutputRules(".jsonl.gz", resumes=True),
    "train": OutputRules(resumes=True),
    "adapt": OutputRules(resumes=True),
    "pretrain": OutputRules(resumes=True),
    "encode": OutputRules(resumes=True, adds_to="index"),
    "axioms": OutputRules(".html"),
    "figure": OutputRules(".svg"),
}
_SELECTED = {"queries": ".jsonl", "qrels": ".qrels", "run": ".run", "pairs": ".jsonl.gz"}


class StepCommand:
    """A command as a step: the keys that it takes, its words, and how it behaves.

    Pickled by its name: another machine imports it there. Raises WrongUse for a command that does not exist,
    or is no step.
    """

    def __init__(self, program: CommandSet, name: str) -> None:
        known = [other for other in program.names if other not in _NOT_STEPS]
        command = None if name in _NOT_STEPS else program.command(name)
        if command is None:
            raise WrongUse(
                f'"{name}" is no command{did_you_mean(name, known)}; choose from: {", ".join(known)}'
            )
        self.name, self._program, self._command = name, program, command
        self.keys = named(command)

    def __reduce__(self) -> tuple[object, ...]:
        return StepCommand, (self._program, self.name)

    def takes(self, name: str) -> bool:
        """Return whether the command has an option, the runner's own among them."""
        return any(f"--{name}" in parameter.opts for parameter in self._command.params)

    def parameter(self, key: str) -> click.Parameter:
        """Find the parameter that a key names; WrongUse lists those there are."""
        name = key.replace("-", "_")
        if name in _REFUSED and name in self.keys:
            raise WrongUse(f'"{key}" is not for recipes: {_REFUSED[name]}')
        if name in self.keys:
            return self.keys[name]
        if name in _RUNNERS_OWN:
            raise WrongUse(f'"{key}" is set by rankhouse run itself; leave it out')
        guess = did_you_mean(name, self.keys)
        accepted = ", ".join(n for n in self.keys if n not in _REFUSED)
        raise WrongUse(f'"{key}" is no option of {self.name}{guess}; accepted: {accepted}')

    def writes(self, key: str) -> bool:
        """Return whether a key names a file or folder that the command writes."""
        parameter = self.keys[key.replace("-", "_")]
        return self._program.writes(parameter) or parameter.name == CACHE

    def names_a_file(self, key: str, value: str, folder: Path) -> bool:
        """Return whether a literal value is the path of a file, which recipes name under [data]."""
        if isinstance(self.parameter(key).type, click.Path) or value.startswith(("ir_datasets:", "hub:")):
            return True
        looks = "/" in value or "." in value
        if not looks or len(value) > 255 or any(mark in value for mark in " (\n"):
            return False
        return (folder / value).exists() or Path(value).exists()

    def rules(self, options: Mapping[str, Any]) -> OutputRules:
        """Return how the command behaves with these options."""
        name = self._command.name or self.name  # a recipe may call it by its old name
        if name == "combine" and options.get("kind") in _SELECTED:
            return OutputRules(_SELECTED[str(options["kind"])])
        if name == "subset":
            return OutputRules(next((end for kind, end in _SELECTED.items() if kind in options), ""))
        return OUTPUT_RULES.get(name, OutputRules())

    def words(self, options: Mapping[str, Any]) -> list[str]:
        """Write options as the words of a command line; WrongUse begins with the key of a bad value."""
        arguments: list[str] = []
        last: list[str] = []
        for key, value in options.items():
            parameter = self.parameter(key)
            if reads := _NOTATIONS.get(parameter.name or ""):
                for text in _several(key, value):
                    reads(text)
            if isinstance(parameter, click.Argument):
                last += _several(key, value) if parameter.nargs != 1 else [_one(key, value)]
            elif isinstance(parameter, click.Option):
                arguments += _option(parameter, key, value)
        return [*arguments, *(["--"] if any(word.startswith("-") for word in last) else []), *last]

    def read(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Let the command read its words; return every parameter with its value, defaults too."""
        return self._program.read(self._command, arguments)

    def key_of(self, error: click.UsageError) -> str:
        """Name the key that a refusal is about; "" if it is about none."""
        parameter = getattr(error, "param", None)
        return next((key for key, one in self.keys.items() if one is parameter), "")

    def telling(self, params: Mapping[str, Any]) -> dict[str, str]:
        """Keep of all parameters with their values what can change the result, as texts to be hashed."""
        keys = {one.name: key for key, one in self.keys.items() if one.name}
        texts = {}
        for name, value in sorted(params.items()):
            key = keys.get(name)
            if key is None or (key not in _REPORTED and self._program.is_neutral(self.keys[key])):
                continue
            if isinstance(value, tuple):  # set = { device = "cpu" } is as neutral as --device
                texts[key] = repr([str(v) for v in value if not str(v).startswith(_NEUTRAL_SETTING)])
            else:
                texts[key] = str(value)
        return texts

    def call(self, arguments: Sequence[str]) -> None:
        """Call the command in the current folder, with ``--json`` where it has that.

        Raises RankhouseError or click.ClickException where it fails.
        """
        arguments = [*(["--json"] if self.takes("json") else []), *arguments]
        code: Any = self._command.main(arguments, prog_name=f"rankhouse {self.name}", standalone_mode=False)
        if isinstance(code, int) and code:
            raise RankhouseError(f"it ended with exit code {code}")


def named(command: click.Command) -> dict[str, click.Parameter]:
    """Key in a recipe -> parameter: long option names with underscores, arguments by their name."""
    options: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            written = [opt for opt in parameter.opts if opt.startswith("--")] or list(parameter.opts)
            options |= {opt.lstrip("-").replace("-", "_"): parameter for opt in written}
        elif parameter.name:
            options[parameter.name] = parameter
    return {name: one for name, one in options.items() if name not in _RUNNERS_OWN}


def _option(option: click.Option, key: str, value: Any) -> list[str]:  # noqa: ANN401 - anything TOML holds
    name = next((opt for opt in option.opts if opt.startswith("--")), option.opts[0])
    if option.is_flag:
        if not isinstance(value, bool):
            raise WrongUse(f"{key} = {value!r}: is a flag; write true or false")
        off = option.secondary_opts[:1]
        return [name] if value else [*off]
    if option.multiple:
        return [word for one in _several(key, value) for word in _given(name, one)]
    if option.nargs != 1:
        return [name, *_several(key, value)]
    return _given(name, _one(key, value))


def _given(name: str, value: str) -> list[str]:
    """Write one option; a value that looks like an option is tied to its name."""
    return [f"{name}={value}"] if value.startswith("-") and name.startswith("--") else [name, value]


def _one(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        kind = {bool: "a flag's", list: "a list", dict: "a table"}.get(type(value), type(value).__name__)
        raise WrongUse(f"{key} = {value!r}: takes one text or number, not {kind}")
    return str(value)


def _several(key: str, value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{name}={_one(f'{key}.{name}', one)}" for name, one in value.items()]
    if isinstance(value, list | tuple):
        return [_one(key, one) for one in value]
    return [_one(key, value)]
