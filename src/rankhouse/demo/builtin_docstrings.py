"""Docstrings of what is written in C: the built-in types and functions, and a fixed list of modules.

They have no Python source to parse, so they are read from the running interpreter. Only compiled modules
named here are loaded, never a line of Python from the library, and loading one of them has no effect
that a user could see. A module that this platform or build lacks is passed over.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import io
import re
import threading
import types
from collections.abc import Iterator
from importlib.machinery import BuiltinImporter, ExtensionFileLoader

from rankhouse.demo.source_docstrings import Definition, clean, is_public, shorten

PUBLISHED_AS = {
    "builtins": "",
    "posix": "os",
    "nt": "os",
    "_bz2": "bz2",
    "_codecs": "codecs",
    "_collections": "collections",
    "_contextvars": "contextvars",
    "_csv": "csv",
    "_ctypes": "ctypes",
    "_curses": "curses",
    "_datetime": "datetime",
    "_decimal": "decimal",
    "_functools": "functools",
    "_io": "io",
    "_locale": "locale",
    "_lzma": "lzma",
    "_pickle": "pickle",
    "_queue": "queue",
    "_random": "random",
    "_signal": "signal",
    "_socket": "socket",
    "_sqlite3": "sqlite3",
    "_ssl": "ssl",
    "_struct": "struct",
    "_thread": "threading",
    "_tracemalloc": "tracemalloc",
    "_weakref": "weakref",
    "array": "array",
    "atexit": "atexit",
    "binascii": "binascii",
    "cmath": "cmath",
    "errno": "errno",
    "faulthandler": "faulthandler",
    "fcntl": "fcntl",
    "gc": "gc",
    "grp": "grp",
    "itertools": "itertools",
    "marshal": "marshal",
    "math": "math",
    "mmap": "mmap",
    "msvcrt": "msvcrt",
    "pwd": "pwd",
    "pyexpat": "xml.parsers.expat",
    "resource": "resource",
    "select": "select",
    "sys": "sys",
    "syslog": "syslog",
    "termios": "termios",
    "time": "time",
    "unicodedata": "unicodedata",
    "winreg": "winreg",
    "winsound": "winsound",
    "zlib": "zlib",
}
"""Compiled module -> the module its users import; the built-ins need no import and bear no prefix."""

UNNAMED: tuple[tuple[str, str, type], ...] = (
    ("re", "Pattern", type(re.compile(""))),
    ("re", "Match", type(re.compile("").match("", 0))),
    ("threading", "Lock", type(threading.Lock())),
    ("threading", "local", threading.local),
    ("types", "GeneratorType", types.GeneratorType),
    ("types", "CoroutineType", types.CoroutineType),
    ("types", "MappingProxyType", types.MappingProxyType),
    ("types", "SimpleNamespace", types.SimpleNamespace),
    ("io", "IOBase", io.IOBase.__base__ or object),
    ("io", "RawIOBase", io.RawIOBase.__base__ or object),
    ("io", "BufferedIOBase", io.BufferedIOBase.__base__ or object),
    ("io", "TextIOBase", io.TextIOBase.__base__ or object),
)
"""Compiled classes that no module holds under the name its users know."""

METHODS = (
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
    staticmethod,
    classmethod,
)
ATTRIBUTES = (types.GetSetDescriptorType, types.MemberDescriptorType, property)


def compiled(module: str, exported: set[str] | None = None) -> Iterator[Definition]:
    """Return what C modules add to one public module ("" for the built-ins).

    Args:
        exported: The names it publishes; None when all are.
    """
    for name, public in PUBLISHED_AS.items():
        if public == module and _is_compiled(name):
            yield from _members(importlib.import_module(name), public, exported)
    for public, path, cls in UNNAMED:
        if public == module:
            yield from _class(cls, public, path)


def _is_compiled(name: str) -> bool:
    """Return whether a module is there and holds no Python code that importing it would run."""
    spec = importlib.util.find_spec(name)
    loader: object = spec.loader if spec is not None else None
    return loader is BuiltinImporter or isinstance(loader, ExtensionFileLoader)


def _members(module: types.ModuleType, public: str, exported: set[str] | None) -> Iterator[Definition]:
    """Return a compiled module, its functions and its classes; second names of one thing are passed over."""
    if public and module.__doc__:  # the docstring of a Python source of that name, if any, comes first
        yield Definition(public, "", "module", "", clean(module.__doc__))
    for name, member in sorted(vars(module).items()):
        if not is_public(name) or (exported is not None and name not in exported):
            continue
        if public and vars(builtins).get(name) is member:
            continue
        original = vars(module).get(f"__{name}__")  # sys keeps the hooks that a program has replaced
        value = original if isinstance(original, types.BuiltinFunctionType) else member
        if isinstance(value, type) and value.__name__ == name:
            yield from _class(value, public, name)
        elif isinstance(value, types.BuiltinFunctionType) and value.__name__ == name:
            yield from _described(value, public, name, "function")


def _class(cls: type, public: str, path: str) -> Iterator[Definition]:
    """Return a compiled class and its own documented members."""
    yield from _described(cls, public, path, "class")
    for name, member in sorted(vars(cls).items()):
        if is_public(name):
            if isinstance(member, METHODS):
                yield from _described(member, public, f"{path}.{name}", "method")
            elif isinstance(member, ATTRIBUTES):
                yield from _described(member, public, f"{path}.{name}", "property")


def _described(value: object, public: str, path: str, kind: str) -> Iterator[Definition]:
    """Return one definition if it is documented; the signature is the interpreter's or its first line."""
    own = vars(value) if isinstance(value, type) else {}
    doc = own.get("__doc__", "") if isinstance(value, type) else value.__doc__
    if not isinstance(doc, str) or not clean(doc):
        return
    signature = "" if kind == "property" else _signature(value, doc, path.rpartition(".")[2])
    yield Definition(public, path, kind, signature, clean(doc))


def _signature(value: object, doc: str, name: str) -> str:
    """Write the arguments from ``__text_signature__``, or as the first line of the docstring shows them."""
    written = getattr(value, "__text_signature__", None)
    if written is None:
        shown = re.match(rf"\s*(?:\w+\.)*{re.escape(name)}(\([^)\n]*\)+)", doc)
        return shown[1] if shown and len(shown[1]) <= 100 else ""
    words = [word.strip() for word in written.strip()[1:-1].split(",")]
    return shorten([word for word in words if word and word != "/" and not word.startswith("$")])
