"""Settings of a service: its options, and the names of what the command line serves; else the demo."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.serve.search.systems import NamedSystem, with_names
from rankhouse.systems.notation import system
from rankhouse.systems.rankers import ComputeOptions, minilm
from rankhouse.systems.stage import canonical_ranker


@dataclass(frozen=True)
class Limits:
    """Limits of one client: ``body`` is in bytes, times are in seconds.

    ``patience`` is the time for the head of a request, the first bytes of its body, or the next bytes of an
    answer to get across; ``slowest`` the bytes a second of a body over any span of that; ``request`` the time
    until a request that has not begun to be answered ends with 504, ``grace`` that of requests after SIGTERM.
    At most ``queue_tokens`` tokens wait for a model; 0 for the engine's own bound.
    """

    body: int = 64 << 20
    patience: float = 20.0
    slowest: int = 16 << 10
    request: float = 3600.0
    grace: float = 30.0
    queue_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Address:
    """Address of a service, and who may reach it: everybody on this machine without a key file."""

    host: Annotated[str, Option("The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option("The port; 0 takes a free one.", least=0, most=65_535)] = 8080
    key_file: Annotated[Path | None, Option("Keys of those who may use it, NAME KEY [read] per line.")] = None


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(Address):
    """Settings of a service that its command shares."""

    split: Annotated[str, Option("The split of long documents.", default="each ranker's own way")] = ""
    pool: Annotated[str, Option("The pool of passages' scores.", default="each ranker's own")] = ""
    queries: Annotated[Path | None, Option("Questions to choose from, of the first index.")] = None
    qrels: Annotated[Path | None, Option("Existing judgements of them; only read.")] = None
    judgements: Annotated[
        Path | None, Option("The qrels file that judging writes; without it nobody judges.", "local")
    ] = None
    allow_hosts: Annotated[
        tuple[str, ...],
        Option("Another of its names, such as a proxy's.", flag="--allow-host", metavar="NAME"),
    ] = ()
    access_log: Annotated[
        Path | None, Option("A line of JSON per request; - for standard error.", "local", metavar="FILE")
    ] = None
    audit: Annotated[
        Path | None,
        Option(
            "Log of who judged, trained, tried keys.",
            "local",
            default="JUDGEMENTS.audit.jsonl",
            metavar="FILE",
        ),
    ] = None
    cluster: Annotated[
        str,
        Option("Hold indexes and rankers on Ray: ray, started here, or a cluster.", metavar="ray|ADDRESS"),
    ] = ""
    replicas: Annotated[int, Option("Replicas of each shard and each ranker in the cluster.", least=1)] = 1
    partial: Annotated[bool, Option("Answer without the shards that do not answer, and say so.")] = False


@dataclass(frozen=True)
class ServeOptions(ServiceSettings):
    """Settings of a service: what it serves, to whom, and where it writes."""

    indexes: Mapping[str, Path] = field(default_factory=dict)  # name -> folder; the first is the default
    # name -> notation or folder; an encoder makes its vectors in the indexes searchable
    rankers: Mapping[str, str] = field(default_factory=dict)
    # systems beside those that every service has; their rankers are among the rankers
    systems: Sequence[NamedSystem] = ()
    runs: Mapping[str, Path] = field(default_factory=dict)  # of the first index, to compare; only read
    trainings: Path | None = None  # the folder of rankers trained from judgements; None beside the judgements
    compute: ComputeOptions = field(default_factory=ComputeOptions)
    limits: Limits = Limits()
    contents: Path | None = None  # the list of a folder's files, where one is served
    # names of rankers that are not opened at the start, but when there is work for them
    late: frozenset[str] = frozenset()
    # seconds within which the first ranker must read for one question to rank by default; 0: never
    quick: float = 1.0
    # whether it does without a report that it ranks better than its first stage
    trust: bool = False


# --- what stands on the command line ----------------------------------------------------------------------

DEMO = Path("demo")
ENCODER = "minilm"
"""Name of the packaged encoder in a service."""

_NAMED = re.compile(r"(?P<name>[\w.+-]{1,64})=(?P<value>.+)", re.ASCII | re.DOTALL)
_ENDINGS = (".index", ".idx", ".run", ".txt", ".trec", ".gz", ".zst")
_SHAPES = frozenset({"index", "ranker", "training"})  # names of folders that say what, not which
_quoted = re.compile(r"""["']([^"']+)["']""").search


def named_paths(given: Sequence[str], what: str) -> dict[str, Path]:
    """Name indexes or runs: ``NAME=PATH`` as said, others by their folder or file."""
    return {name: Path(value) for name, value in _named(given, what, short_name).items()}


def named_rankers(given: Sequence[str]) -> dict[str, str]:
    """Name rankers: ``NAME=RANKER`` as said, others by the folder or the checkpoint."""
    return _named(given, "--ranker", lambda spec: short_name(match[1] if (match := _quoted(spec)) else spec))


def named_systems(
    given: Sequence[str], rankers: Mapping[str, str]
) -> tuple[list[NamedSystem], dict[str, str]]:
    """Read systems, each as ``NAME=EXPRESSION``; an expression may call the service's rankers by their names.

    Returns the systems, and the rankers with those that only an expression names, under short names.
    WrongUse: there is no name, or the expression has a fault.
    """
    served, specs = dict(rankers), dict[str, NamedSystem]()
    for text in given:
        match = _NAMED.fullmatch(text)
        if match is None:
            raise WrongUse(f"--system {text}: write NAME=EXPRESSION, for example  hybrid='bm25 + 0.5 * ql'")
        if match["name"] in specs:
            raise WrongUse(f'--system {text}: "{match["name"]}" already names another system')
        spec = NamedSystem(match["name"], system(match["value"]))
        names = {}
        for ranker in spec.rankers:
            if ranker not in served:
                names[ranker] = _name_in(served, ranker)
                served.setdefault(names[ranker], ranker)
        specs[spec.name] = replace(spec, system=with_names(spec.system, names))
    return list(specs.values()), served


def _name_in(served: Mapping[str, str], ranker: str) -> str:
    """Return the name of a ranker among those of the service, or a new one."""
    for name, spec in served.items():
        if canonical_ranker(spec) == ranker:
            return name
    short = next(iter(named_rankers([ranker])))
    return next(
        name for n in range(len(served) + 1) if (name := f"{short}-{n + 1}" if n else short) not in served
    )


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
    """Return what ``rankhouse demo`` left in a folder, to be served; judging writes beside it."""
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
