"""Run as a program: write Python's own documentation to standard output, one JSON object a line.

It imports every public module of the standard library, so it runs in a process of its own and uses nothing
but that library. An object is documented once, under the name that the first module to publish it gives it:
built-in names first, packages before their modules.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import json
import pkgutil
import re
import sys
import threading
import types
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import Any

LEFT_OUT = frozenset(
    # Tests, programs, what newer versions dropped, what is generated.
    {"test", "tests", "idlelib", "lib2to3", "turtledemo", "distutils", "encodings", "pydoc_data"}
    # Modules whose import does something; other names of what os, os.path and xml.parsers publish.
    | {"antigravity", "this", "posix", "nt", "posixpath", "ntpath", "genericpath", "pyexpat"}
)
UNNAMED = {"threading": {"Lock": type(threading.Lock()), "RLock": type(threading.RLock())}}
"""Classes that no module holds under the name of the function that makes them."""
IN_C = ("_decimal", "_elementtree")
"""Undocumented twins of modules in Python."""
LONGEST_SIGNATURE, LONGEST_DEFAULT = 100, 24
METHODS = (types.FunctionType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
PROPERTIES = (property, functools.cached_property, types.GetSetDescriptorType, types.MemberDescriptorType)


def is_public(dotted: str) -> bool:
    """Return whether no part of a dotted name begins with an underscore."""
    return not any(part.startswith("_") for part in dotted.split("."))


def in_order(members: Mapping[str, Any], listed: Collection[str] = ()) -> list[tuple[str, Any]]:
    """List public members by name; of several names of one thing, a listed one and its own come first."""

    def place(item: tuple[str, Any]) -> tuple[bool, bool, str]:
        return item[0] not in listed, getattr(item[1], "__name__", "") != item[0], item[0]

    return sorted(((one, value) for one, value in members.items() if is_public(one)), key=place)


def public_modules() -> dict[str, types.ModuleType]:
    """Import the library's public modules that this platform has: name -> module, packages first."""
    absent: dict[str, Any] = dict.fromkeys(IN_C)
    sys.modules |= absent  # None: cannot be imported
    found: dict[str, types.ModuleType] = {}
    waiting = [*sys.stdlib_module_names, "os.path"]
    while waiting:
        name = waiting.pop()
        if not is_public(name) or name.rpartition(".")[2] in LEFT_OUT:
            continue
        try:
            found[name] = importlib.import_module(name)
        except Exception:  # noqa: BLE001, S112 - a module of another platform, or of a library that is not there
            continue
        if name != "os.path":
            below = getattr(found[name], "__path__", ())
            waiting += [f"{name}.{one.name}" for one in pkgutil.iter_modules(below)]
    return dict(sorted(found.items(), key=lambda item: (item[0] != "builtins", item[0].count("."), item[0])))


class Documentation:
    """Gathers what is documented, each object once."""

    def __init__(self, modules: dict[str, types.ModuleType]) -> None:
        self._modules = modules
        self._seen: dict[int, object] = {}
        self.documents: dict[str, dict[str, str]] = {}
        published = {
            name: [(one, value) for one, value in self._published(name, module) if self._is_new(value)]
            for name, module in modules.items()
        }
        for name, members in published.items():
            self._add_module(name, members)

    def _add_module(self, name: str, members: list[tuple[str, Any]]) -> None:
        """Add a module, its functions, and its classes with their members; the built-ins bear no prefix."""
        prefix, where = (f"{name}.", f"module {name}") if name != "builtins" else ("", "built in")
        if prefix:
            self._add(name, f"module {name}", self._modules[name].__doc__, f"Module {name}.")
        for one, value in members:
            if isinstance(value, type):
                self._add_class(f"{prefix}{one}", one, value, where)
            else:
                title = f"{prefix}{one}{signature(value, one, is_method=False)}"
                self._add(f"{prefix}{one}", title, value.__doc__, f"Function {one}, {where}.")
        for one, cls in UNNAMED.get(name, {}).items():
            self._add_class(f"{prefix}{one}", one, cls, where)

    def _published(self, name: str, module: types.ModuleType) -> Iterator[tuple[str, Any]]:
        """Stream a module's public functions and classes, without what another public module defines.

        A package publishes what it takes from its own modules.
        """
        listed = getattr(module, "__all__", None)
        names = {*vars(module), *(listed or ())}
        for one, value in in_order({one: getattr(module, one, None) for one in names}, listed or ()):
            owner = name if name == "builtins" else getattr(value, "__module__", None) or name
            from_below = owner.startswith(f"{name}.") and not inspect.ismethod(value)
            from_hidden = owner not in self._modules and (listed is None or one in listed)
            documented = inspect.isroutine(value) or isinstance(value, type)
            if documented and (owner == name or from_below or from_hidden):
                yield one, value

    def _is_new(self, value: object) -> bool:
        """Return whether an object comes for the first time; bound methods count as their functions."""
        function = getattr(value, "__func__", value)
        new = id(function) not in self._seen
        self._seen[id(function)] = function
        return new

    def _add_class(self, name: str, path: str, cls: type, where: str) -> None:
        """Add a class and its members, with those of the unpublished classes right above it."""
        maker = vars(cls).get("__init__") or vars(cls).get("__new__")
        made = maker.__doc__ if isinstance(maker, types.FunctionType) else ""
        texts = [clean(doc) for doc in (vars(cls).get("__doc__"), made) if isinstance(doc, str)]
        title = f"class {name}{signature(cls, path, is_method=False)}"
        self._add(name, title, "\n\n".join(filter(None, texts)), f"Class {path}, {where}.")
        for base in (cls, *takewhile(self._is_unpublished, cls.__mro__[1:])):
            for one, member in in_order(vars(base)):
                if self._is_new(member):
                    self._add_member(name, path, one, member, where=where)

    def _is_unpublished(self, cls: type) -> bool:
        return id(cls) not in self._seen or cls.__module__.startswith("_")

    def _add_member(self, owner: str, path: str, name: str, member: Any, where: str) -> None:  # noqa: ANN401
        function = inspect.unwrap(getattr(member, "__func__", member))
        if isinstance(function, (*METHODS, types.BuiltinFunctionType)):
            called = signature(function, name, is_method=not isinstance(member, staticmethod))
            kind = "Method"
        elif isinstance(member, PROPERTIES):
            kind, called = "Property", ""
        else:
            return
        text = f"{kind} {name} of class {path}, {where}."
        self._add(f"{owner}.{name}", f"{owner}.{name}{called}", function.__doc__, text)

    def _add(self, doc_id: str, title: str, doc: object, whereabouts: str) -> None:
        """Add a document; a dotted name is one word to an analyzer, its whereabouts are several."""
        if isinstance(doc, str) and clean(doc) and doc_id.isascii():
            text = f"{clean(doc)}\n\n{whereabouts}"
            self.documents.setdefault(doc_id, {"id": doc_id, "title": title, "text": text})


def signature(value: Any, name: str, *, is_method: bool) -> str:  # noqa: ANN401 - any function or class
    """Write the arguments as one calls them: no self, no annotations, long defaults and long rests cut."""
    try:
        parameters = list(inspect.signature(value).parameters.values())[int(is_method) :]
    except (
        AttributeError,
        TypeError,
        ValueError,
    ):  # written in C: the first line of the docstring may show it
        shown = re.match(rf"\s*(?:\w+\.)*{re.escape(name)}(\([^)\n]*\)+)", value.__doc__ or "")
        return shown[1] if shown and len(shown[1]) <= LONGEST_SIGNATURE else ""
    words: list[str] = []
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not any(word.startswith("*") for word in words):
            words.append("*")
        default = "" if one.default is one.empty else f"={shortened(one.default)}"
        stars = "*" * ((one.kind is one.VAR_POSITIONAL) + 2 * (one.kind is one.VAR_KEYWORD))
        words.append(f"{stars}{one.name}{default}")
    written = f"({', '.join(words)})"
    while len(written) > LONGEST_SIGNATURE:
        words = words[:-1]
        written = f"({', '.join([*words, '...'])})"
    return written


def shortened(default: object) -> str:
    """Write a default value; what is long, or has no form of its own, is left out."""
    written = repr(default)
    return "..." if len(written) > LONGEST_DEFAULT or "<" in written else written


def clean(doc: str) -> str:
    """Take the indentation off a docstring and the blank lines around it."""
    return inspect.cleandoc(doc).strip()


def topics() -> Iterator[dict[str, str]]:
    """Stream the topics of the language that pydoc knows."""
    from pydoc_data.topics import topics as texts

    for name in sorted(texts):
        heading = next(line for line in texts[name].splitlines() if line.strip())
        text = re.sub(r"\n[*=~-]{3,}\n", "\n", texts[name]).strip()
        yield {"id": f"topic:{name}", "title": f"{name}: {heading.strip()}", "text": text}


def main() -> None:
    """Write all documents in the order of their ids, the topics first."""
    with contextlib.redirect_stdout(io.StringIO()):  # whatever an import may print
        found = Documentation(public_modules())
    for document in (*topics(), *(one for _, one in sorted(found.documents.items()))):
        sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
