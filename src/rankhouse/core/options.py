"""What an options record says of its fields, once: the command line's options are made from it.

A field's name, type and default stand in the record; its help and kind are its annotation:

    @dataclass(frozen=True)
    class RerankOptions:
        depth: Annotated[int, Option("Documents read a query.", least=0)] = 1000

Commands, :mod:`rankhouse.api`, recipes and the shards of a job all fill the same record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

Kind = Literal["value", "input", "inputs", "index", "source", "local"]
"""A plain value; a file or folder that is read; those without an option's name; an index that is added to; a
text that names files, by itself or in a notation; a path of this machine alone."""


@dataclass(frozen=True)
class Option:
    """How a field is given on the command line."""

    help: str  # what it means, in a line
    kind: Kind = "value"  # what its text is
    flag: str = ""  # its name there, where it is not -- and the field's
    choices: Sequence[str] = ()  # the values there are, where its type does not list them
    default: str = ""  # what holds where it is not given, in words, if the field's default does not say it
    least: int | None = None
    most: int = 2**31 - 1
    metavar: str | None = None  # what stands for its value in the help
    neutral: bool = False  # it changes how fast, or what is shown, and never what is computed


class OptionField(NamedTuple):
    """A field with its type and its option."""

    name: str
    type: Any
    default: Any
    is_required: bool
    option: Option


def option_fields(record: type) -> list[OptionField]:
    """Return the fields of a record that have an option: its own first, then those of its bases."""
    hints = get_type_hints(record, include_extras=True)
    held: dict[str, Field[Any]] = {field.name: field for field in fields(record)}
    names = dict.fromkeys(name for one in record.__mro__ for name in vars(one).get("__annotations__", ()))
    found = []
    for name in names:
        if name in held and get_origin(hint := hints[name]) is Annotated:
            kind, *notes = get_args(hint)
            default = held[name].default
            found += [
                OptionField(name, kind, default, default is MISSING, option=note)
                for note in notes
                if isinstance(note, Option)
            ]
    return found
