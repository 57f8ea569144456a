"""Docstrings of Python sources: parsed, never imported, each under the name its users know.

The standard library often writes a thing in one place and publishes it in another: ``json.JSONDecoder``
stands in ``json/decoder.py``, ``ArgumentParser.add_argument`` in a private base class, ``random.choice`` is
a method of a hidden ``Random()``. Each definition is given once, under its published name, and dropped
when it has none.
"""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[str, str]
"""A module and the name of a definition inside it: ("argparse", "ArgumentParser.add_argument")."""

LONGEST_SIGNATURE = 100
LONGEST_DEFAULT = 24


class Definition(NamedTuple):
    """Something documented: what it is, how it is called, what it says about itself."""

    module: str
    path: str  # "" for the module itself
    kind: str  # module, class, function, method or property
    signature: str  # "(text, width=70)", or nothing
    doc: str


class Source(NamedTuple):
    """One parsed file under the module name it is published as."""

    module: str
    is_package: bool
    tree: ast.Module


def parse(path: Path, module: str) -> Source:
    """Parse one file; its warnings about old spellings are not ours to show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(path.read_bytes(), filename=str(path))
    return Source(module, path.name == "__init__.py", tree)


def documented(sources: list[Source]) -> list[Definition]:
    """Return the documented public definitions of one package or module, each once, by published name."""
    _put_in_place(sources)
    published, renamed = _published(sources), aliases(sources)
    by_place: dict[Place, Definition] = {}
    inherited: dict[Place, Definition] = {}
    heirs = _heirs(sources, published)
    for source in sources:
        for definition in _definitions(source):
            head, _, rest = definition.path.partition(".")
            place = (source.module, head)
            for places, target in ((published, by_place), (heirs, inherited)):
                if place in places and (rest or target is by_place):
                    module, name = places[place]
                    path = f"{name}.{rest}" if rest else name
                    new = renamed.get((module, path), (module, path))
                    target.setdefault(new, definition._replace(module=new[0], path=new[1]))
    return list((inherited | by_place).values())


def aliases(sources: list[Source]) -> dict[Place, Place]:
    """Find functions that are methods of a hidden object or of a class.

    ``_inst = Random()``, ``choice = _inst.choice`` in ``random``; ``open = TarFile.open`` in ``tarfile``.
    """
    renamed: dict[Place, Place] = {}
    for source in sources:
        classes = {name for name, node in _top_level(source).items() if isinstance(node, ast.ClassDef)}
        holders = {name: name for name in classes & static_all(source)[0]}
        for node in source.tree.body:
            match node:
                case ast.Assign([ast.Name(name)], ast.Call(ast.Name(cls), [])) if cls in classes:
                    holders[name] = cls
                case ast.Assign([ast.Name(name)], ast.Attribute(ast.Name(holder), method)) if (
                    holder in holders and name == method
                ):
                    renamed[source.module, f"{holders[holder]}.{method}"] = (source.module, name)
    return renamed


def static_all(source: Source) -> tuple[set[str], bool]:
    """Read ``__all__`` as far as it is written out: the names, and whether that is all of it."""
    names: set[str] = set()
    complete = False
    for node in _statements(source.tree.body):
        value = _value_of_all(node)
        if value is None:
            continue
        try:
            names.update(ast.literal_eval(value))
            complete = complete or isinstance(node, ast.Assign)
        except ValueError:  # computed when the module runs
            return names, False
    return names, complete


def _value_of_all(node: ast.stmt) -> ast.expr | None:
    """Return what a statement puts into ``__all__``, None when it is about something else."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.value if node.targets[0].id == "__all__" else None
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.value if node.target.id == "__all__" else None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "__all__.extend":
            return call.args[0]
    return None


def is_public(dotted: str) -> bool:
    """Return whether no part of a dotted name begins with an underscore."""
    return not any(part.startswith("_") for part in dotted.split("."))


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Walk statements, entering ``if``, ``try`` and ``with``: all branches, whatever this platform takes."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _statements(node.body)
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _statements(handler.body)
        if isinstance(node, ast.If | ast.Try):
            yield from _statements(node.orelse)


def _top_level(source: Source) -> dict[str, Function | ast.ClassDef]:
    """Return the functions and classes at the top of a module, the first of each name."""
    definitions: dict[str, Function | ast.ClassDef] = {}
    for node in _statements(source.tree.body):
        if isinstance(node, Function | ast.ClassDef):
            definitions.setdefault(node.name, node)
    return definitions


def _imports(source: Source) -> Iterator[tuple[str, str, str]]:
    """Return (module, name there, name here) of each ``from module import name`` at the top of a module."""
    for node in _statements(source.tree.body):
        if isinstance(node, ast.ImportFrom):
            base = source.module.split(".")
            if node.level:
                base = base[: len(base) - node.level + source.is_package]
            parts = [*base, node.module] if node.level and node.module else base
            module = ".".join(parts) if node.level else node.module or ""
            for alias in node.names:
                yield module, alias.name, alias.asname or alias.name


def _published(sources: list[Source]) -> dict[Place, Place]:
    """Map where each public top-level definition is written to where its users find it."""
    defined = [(s.module, name) for s in sources for name in _top_level(s)]
    exported: dict[str, set[str]] = {}
    for source in sources:
        listed, _ = static_all(source)
        public = {name for module, name in defined if module == source.module and is_public(name)}
        exported.setdefault(source.module, set()).update(listed or public)
    names: dict[Place, Place] = {}
    known = set(defined)
    for source in sources:
        names.update(_second_names(source, {name for module, name in known if module == source.module}))
    for source in sorted(sources, key=lambda s: (s.module.count("."), s.module)):
        if is_public(source.module):
            for place, name in _facade(source, exported, known):
                if is_public(name):
                    names.setdefault(place, (source.module, name))
    for module, name in defined:
        if is_public(module) and is_public(name):
            names.setdefault((module, name), (module, name))
    modules = {(s.module, ""): (s.module, "") for s in sources if is_public(s.module)}
    return modules | names


def _second_names(source: Source, known: set[str]) -> Iterator[tuple[Place, Place]]:
    """Return definitions published by assignment: ``new = __hash_new``, ``getpass = unix_getpass``."""
    listed, _ = static_all(source)
    for node in _statements(source.tree.body):
        match node:
            case ast.Assign([ast.Name(name)], ast.Name(other)) if other in known and is_public(name):
                if not is_public(other) or (name in listed and other not in listed):
                    yield (source.module, other), (source.module, name)


def _facade(
    source: Source, exported: Mapping[str, set[str]], known: set[Place]
) -> Iterator[tuple[Place, str]]:
    """Return what a public module publishes of modules below it or of private ones: (place, name here)."""
    listed, complete = static_all(source)
    origins = set()
    for module, name, here in _imports(source):
        if module != source.module and (module.startswith(source.module + ".") or not is_public(module)):
            for each in exported.get(module, set()) if name == "*" else {name}:
                published = each if name == "*" else here
                if (module, each) in known and (published in listed or not complete):
                    origins.add(each)
                    yield (module, each), published
    if source.is_package:  # names of __all__ that are fetched when first used
        below = source.module + "."
        for name in listed - origins:
            places = [place for place in known if place[1] == name and place[0].startswith(below)]
            if len(places) == 1 and (source.module, name) not in known:
                yield places[0], name


def _heirs(sources: list[Source], published: Mapping[Place, Place]) -> dict[Place, Place]:
    """Map each unpublished class to the first published class that derives from it."""
    classes: dict[Place, list[Place]] = {}
    for source in sources:
        imported = {here: (module, name) for module, name, here in _imports(source)}
        for name, node in _top_level(source).items():
            if isinstance(node, ast.ClassDef):
                named = [base.id for base in node.bases if isinstance(base, ast.Name)]
                classes[source.module, name] = [imported.get(b, (source.module, b)) for b in named]
    heirs: dict[Place, Place] = {}
    for heir, bases in classes.items():
        waiting = list(bases) if heir in published else []
        while waiting:
            base = waiting.pop(0)
            if base in classes and base not in published and base not in heirs:
                heirs[base] = published[heir]
                waiting.extend(classes[base])
    return heirs


def _put_in_place(sources: list[Source]) -> None:
    """Move docstrings that are assigned to ``__doc__`` afterwards to where a docstring stands."""
    written = {name: ast.get_docstring(node) for s in sources for name, node in _top_level(s).items()}
    for source in sources:
        defined: dict[str, Function | ast.ClassDef | ast.Module] = {**_top_level(source), "": source.tree}
        for node in source.tree.body:
            match node:
                case ast.Assign([ast.Name("__doc__")], ast.Constant(str(doc))):
                    owner = ""
                case ast.Assign([ast.Attribute(ast.Name(owner), "__doc__")], ast.Constant(str(doc))):
                    pass
                case ast.Assign(
                    [ast.Attribute(ast.Name(owner), "__doc__")],
                    ast.Attribute(ast.Attribute(attr=other), "__doc__"),
                ):
                    doc = written.get(other) or ""
                case _:
                    continue
            if doc and owner in defined and not ast.get_docstring(defined[owner]):
                defined[owner].body.insert(0, ast.Expr(ast.Constant(doc)))


def _definitions(source: Source) -> Iterator[Definition]:
    """Return the module itself and everything documented in it, private classes included."""
    if doc := ast.get_docstring(source.tree):
        yield Definition(source.module, "", "module", "", doc)
    for node in _top_level(source).values():
        yield from _below(node, source.module, "")


def _below(node: Function | ast.ClassDef, module: str, within: str) -> Iterator[Definition]:
    """Return a definition and, for a class, its public members."""
    path = f"{within}.{node.name}" if within else node.name
    doc = ast.get_docstring(node) or ""
    if isinstance(node, Function):
        if doc:
            kind = "function" if not within else "property" if _is_property(node) else "method"
            signature = "" if kind == "property" else _signature(node, method=bool(within))
            yield Definition(module, path, kind, signature, doc)
        return
    members = [n for n in _statements(node.body) if isinstance(n, Function | ast.ClassDef)]
    makers = [n for n in members if isinstance(n, Function) and n.name in ("__init__", "__new__")]
    told = [doc, *(ast.get_docstring(maker) or "" for maker in makers[:1])]
    if any(told):
        signature = _signature(makers[0], method=True) if makers else ""
        yield Definition(module, path, "class", signature, "\n\n".join(filter(None, told)))
    for member in members:
        if is_public(member.name):
            yield from _below(member, module, path)


def _is_property(node: Function) -> bool:
    """Return whether a method is read without being called."""
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def _signature(node: Function, method: bool) -> str:
    """Write the arguments as one calls them: no self, no annotations, long defaults cut."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    defaults = [*[None] * (len(plain) - len(args.defaults)), *args.defaults]
    words = [_argument(a, d) for a, d in zip(plain, defaults, strict=True)]
    words = words[1:] if method and not static else words
    if args.vararg or args.kwonlyargs:
        words.append(f"*{args.vararg.arg}" if args.vararg else "*")
    words += [_argument(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg:
        words.append(f"**{args.kwarg.arg}")
    return shorten(words)


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    """Write one argument with its default."""
    if default is None:
        return argument.arg
    written = ast.unparse(default)
    return f"{argument.arg}={written if len(written) <= LONGEST_DEFAULT else '...'}"


def shorten(words: list[str]) -> str:
    """Join arguments, leaving out the last ones of a signature too long for a title."""
    written = f"({', '.join(words)})"
    while len(written) > LONGEST_SIGNATURE and words:
        words = words[:-1]
        written = f"({', '.join([*words, '...'])})"
    return written


def clean(doc: str) -> str:
    """Take the indentation off a docstring and the blank lines around it."""
    return inspect.cleandoc(doc).strip()
