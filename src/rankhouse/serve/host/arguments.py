"""What stands on the command line of ``rankhouse serve``, as names and paths; without any, the demo's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from rankhouse.core.errors import WrongUse
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.systems.checkpoints import minilm

DEMO = Path("demo")
ENCODER = "minilm"
"""What the packaged encoder is called in a service."""

_NAMED = re.compile(r"(?P<name>[\w.+-]{1,64})=(?P<value>.+)", re.ASCII | re.DOTALL)
_ENDINGS = (".index", ".idx", ".run", ".txt", ".trec", ".gz", ".zst")
_SHAPES = frozenset({"index", "ranker", "training"})  # names of folders that say what, not which
_quoted = re.compile(r"""["']([^"']+)["']""").search


def named_indexes(given: Sequence[str]) -> dict[str, Path]:
    """Name indexes: ``NAME=FOLDER`` as said, others by their folder.

    Raises:
        WrongUse: Two have one name.
    """
    return {name: Path(value) for name, value in _named(given, "index", short_name).items()}


def named_rankers(given: Sequence[str]) -> dict[str, str]:
    """Name rankers: ``NAME=RANKER`` as said, others by the folder or the checkpoint.

    Raises:
        WrongUse: Two have one name.
    """
    return _named(given, "--ranker", lambda spec: short_name(match[1] if (match := _quoted(spec)) else spec))


def named_runs(given: Sequence[str]) -> dict[str, Path]:
    """Name runs: ``NAME=FILE`` as said, others by their file.

    Raises:
        WrongUse: Two have one name.
    """
    return {name: Path(value) for name, value in _named(given, "--run", short_name).items()}


def _named(given: Sequence[str], what: str, name_of: Callable[[str], str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in given:
        match = None if Path(text).exists() else _NAMED.fullmatch(text)
        name, value = (match["name"], match["value"]) if match else (name_of(text), text)
        if name in named:
            raise WrongUse(
                f'{what} {text}: "{name}" already names {named[name]}; name it otherwise, NAME={value}'
            )
        named[name] = value
    return named


def short_name(text: str) -> str:
    """Return a short name for a path; ``demo/index`` and ``mine/tk/training`` are called by their parents."""
    path = Path(text).absolute()
    while path.name in _SHAPES and path.parent.name:
        path = path.parent
    name = path.name
    while name.endswith(_ENDINGS):
        name = name.rpartition(".")[0]
    return re.sub(r"[^\w.+-]+", "-", name, flags=re.ASCII)[:64].strip("-") or "unnamed"


def demo_options(folder: Path) -> ServeOptions:
    """Return what ``rankhouse demo`` left in a folder, to be served; judging writes beside it.

    Raises:
        WrongUse: There is no demo.
    """
    if not (folder / "index").is_dir():
        raise WrongUse(
            f"there is nothing to serve: name an index (rankhouse serve my.index), a ranker (--ranker "
            f"NAME=RANKER) or both; or make {folder}/ first (rankhouse demo), or begin with your own files "
            "(rankhouse up FOLDER)"
        )
    rankers = {}
    encoder = minilm()
    if encoder is not None:
        if (folder / "index" / "vectors" / "default").is_dir():
            rankers[ENCODER] = f"biencoder({str(encoder)!r})"
        if (folder / "tk" / "ranker").is_dir():
            rankers["tk"] = str(folder / "tk")
    return ServeOptions(
        {"demo": folder / "index"},
        rankers,
        queries=_there(folder / "questions.jsonl"),
        qrels=_there(folder / "judgements.txt"),
        runs={path.stem: path for path in sorted(folder.glob("*.run"))},
        judgements=folder / "judged.txt",
    )


def _there(path: Path) -> Path | None:
    return path if path.exists() else None
