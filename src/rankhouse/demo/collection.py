"""Python's own documentation as a collection: found on this machine, parsed, streamed.

Three sources, in this order: the language topics of pydoc; the built-in types and functions; the
standard library, package by package. Ids are qualified names as their users write them: ``textwrap.wrap``,
``str.split``, ``topic:assignment``. The order and the content are the same each time for one Python
version on one platform.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from rankhouse.core.errors import MissingInput
from rankhouse.core.nouns import Document
from rankhouse.demo.builtin_docstrings import PUBLISHED_AS, UNNAMED, compiled
from rankhouse.demo.source_docstrings import Definition, aliases, documented, is_public, parse, static_all

PUBLISHED_ELSEWHERE = {
    "_collections_abc": "collections.abc",
    "_pydatetime": "datetime",
    "_pydecimal": "decimal",
    "genericpath": "os.path",
    "posixpath": "os.path",
}
"""Modules that write down what another name publishes."""

LEFT_OUT = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages", "__pycache__"}
    | {"distutils", "encodings", "pydoc_data", "ntpath"}
)
"""Tests and programs; what newer versions dropped, what is generated, what repeats another module."""

FEWEST_MODULES = 50


def collect(library: Path | None = None) -> Iterator[Document]:
    """Stream the documentation of the Python that runs, about 7,500 documents.

    Args:
        library: The folder of the standard library's sources; this interpreter's by default.

    Raises:
        MissingInput: There are no sources there; some minimal installations leave them out.
    """
    folder = Path(library or sysconfig.get_path("stdlib"))
    families = _families(folder)
    if len(families) < FEWEST_MODULES:
        raise MissingInput(
            f"{folder} holds {len(families)} modules of Python source; the demo reads the standard library's "
            "docstrings there and needs an installation that brings its sources, as python.org's and most "
            "distributions' do (on Debian and Ubuntu: apt install libpython3-stdlib)"
        )
    yield from _topics()
    yield from _documents(compiled(""))
    outside = {name.partition(".")[0] for name in (*PUBLISHED_AS.values(), *(name for name, _, _ in UNNAMED))}
    for family in sorted((families.keys() | outside) - {""}):
        yield from _documents(_family(families.get(family, []), family))


def _topics() -> Iterator[Document]:
    """Return pydoc's topics of the language; the data module holds one dictionary and no code."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        heading = next(line for line in topics[name].splitlines() if line.strip())
        text = re.sub(r"\n[*=~-]{3,}\n", "\n", topics[name]).strip()
        yield Document(f"topic:{name}", text, f"{name}: {heading.strip()}")


def _families(folder: Path) -> dict[str, list[tuple[str, Path]]]:
    """Find the source files of each top-level module: (module, file), sorted."""
    families: dict[str, list[tuple[str, Path]]] = {}
    for path in _files(folder):
        parts = list(path.relative_to(folder).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        name = PUBLISHED_ELSEWHERE.get(name, name)
        if name and is_public(name.partition(".")[0]) and parts[-1] != "__main__":
            families.setdefault(name.partition(".")[0], []).append((name, path))
    return {family: sorted(files) for family, files in families.items()}


def _files(folder: Path) -> Iterator[Path]:
    """Walk the sources, entering only folders that can be packages."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.stem in LEFT_OUT or path.name in LEFT_OUT:
            continue
        if path.is_dir() and path.name.isidentifier():
            yield from _files(path)
        elif path.suffix == ".py":
            yield path


def _family(files: list[tuple[str, Path]], family: str) -> Iterator[Definition]:
    """Return what is documented under one top-level name: from its sources, then from C."""
    sources = [parse(path, name) for name, path in files]
    yield from documented(sources)
    renamed = aliases(sources)
    for module in sorted({m for m in PUBLISHED_AS.values() if m.partition(".")[0] == family} | {family}):
        exported: set[str] | None = None
        for source in sources:
            names, complete = static_all(source)
            if source.module == module and complete:
                exported = names
        for definition in compiled(module, exported):
            place = renamed.get((definition.module, definition.path), (definition.module, definition.path))
            yield definition._replace(module=place[0], path=place[1])


def _documents(definitions: Iterable[Definition]) -> Iterator[Document]:
    """Turn definitions into documents, the first of each id, sorted by id."""
    by_name: dict[str, Definition] = {}
    for definition in definitions:
        name = ".".join(filter(None, (definition.module, definition.path)))
        by_name.setdefault(name, definition)
    for name in sorted(by_name):
        d = by_name[name]
        before = f"{d.kind} " if d.kind in ("module", "class") else ""
        yield Document(name, f"{d.doc}\n\n{_whereabouts(d)}", f"{before}{name}{d.signature}")


def _whereabouts(d: Definition) -> str:
    """Say in words what and where this is: a dotted name is one word to an analyzer, these are several."""
    if d.kind == "module":
        return f"Module {d.module}."
    owner, _, name = d.path.rpartition(".")
    of_class = f" of class {owner}" if owner else ""
    where = f"module {d.module}" if d.module else "built in"
    kind = "function" if d.kind == "method" and not owner else d.kind
    return f"{kind.capitalize()} {name}{of_class}, {where}."
