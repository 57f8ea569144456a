"""rankhouse doctor, models: what is wrong with data before time is spent, and which checkpoints are known."""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from rich.text import Text

from rankhouse import __version__
from rankhouse.cli import console
from rankhouse.cli.doctor import (
    check_cache,
    check_encoded,
    check_judgement_log,
    check_kept,
    check_ranker,
    check_recipe_output,
    is_recipe_output,
    recognise,
)
from rankhouse.cli.options import verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import RankhouseError, WrongUse, name_few, visible
from rankhouse.index.index import Index
from rankhouse.index.lexical import kernel
from rankhouse.io.ciff import reading_ciff
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.files import Skips
from rankhouse.io.pairs import numbered_pairs
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.labels.label_noise import Contradictions
from rankhouse.models.families import is_unfinished
from rankhouse.page.tables import CommandResult, Table
from rankhouse.systems.rankers import CHECKPOINTS, bundle_folder, default_ranker
from rankhouse.systems.stage import DEFAULT

MOST_FAULTS = 1_000_000
_FOR_DEVELOPERS = frozenset({"dev", "docs", "bench", "release", "all"})


@dataclass
class Finding:
    """A finding of the doctor about one file or folder."""

    name: str  # its path, or the notation of a ranker
    kind: str  # what it was taken for
    facts: dict[str, str] = field(default_factory=dict)  # counts and other plain facts
    faults: list[str] = field(default_factory=list)  # what is wrong; empty for a healthy thing


@verb("doctor", "rankhouse doctor corpus.jsonl.gz queries.tsv qrels.txt bm25.run")
def command(
    *,
    things: Annotated[tuple[str, ...], Option(kind="source", positional=True)] = (),
    qrels: Annotated[Path | None, Option("Judgements to compare runs with.")] = None,
    corpus: Annotated[Path | None, Option("Documents on which to measure what a ranker cuts off.")] = None,
) -> CommandResult:
    """Check runs, qrels, queries, corpora, PAIRS, indexes, caches and rankers; each by its content.

    A ranker is a bundle folder, or a checkpoint by its family: 'monot5("DIR")'.

    Without arguments, reports on this installation. Exits with 1 if anything is wrong.
    """
    if not things:
        return _installation()
    findings = [examine(thing, qrels, corpus) for thing in things]
    is_ill = any(finding.faults for finding in findings)
    return CommandResult(findings, lambda: _show(findings), code=int(is_ill))


def examine(thing: str, qrels: Path | None = None, corpus: Path | None = None) -> Finding:
    """Recognise a thing by its content and check it: a run with judgements, a ranker with documents."""
    finding = Finding(thing, "unreadable")
    try:
        if _is_ranker(thing):
            finding.kind = "ranker"
            check_ranker(thing, corpus, finding.facts, finding.faults)
        else:
            finding.kind = recognise(Path(thing))
            skips = Skips(MOST_FAULTS)
            _CHECKS[finding.kind](Path(thing), finding, skips, qrels)
            finding.faults[:0] = map(str, skips.seen)
    except RankhouseError as error:
        finding.faults.append(str(error))
    return finding


def _is_ranker(thing: str) -> bool:
    """Tell a ranker's notation, or the folder of a bundle or checkpoint, from the paths of data."""
    folder = Path(bundle_folder(thing))
    if thing == DEFAULT and not folder.exists():
        return True
    if is_recipe_output(folder):
        return False
    held = ("manifest.json", "config.json", "modules.json")
    if not folder.is_dir() or (folder / "segments").is_dir():
        return thing.rstrip().endswith(")") and not folder.exists()
    return is_unfinished(folder) or any((folder / name).exists() for name in held)


def _run(path: Path, finding: Finding, skips: Skips, qrels: Path | None) -> None:
    run = read_run(path, skips)
    depths = [len(run[q].doc_ids) for q in run]
    tied = sum(len(r.scores) - len(set(r.scores.tolist())) for r in run.values())
    finding.facts |= {
        "queries": f"{len(run):,}",
        "rows": f"{run.rows:,}",
        "documents a query": f"{min(depths, default=0):,} to {max(depths, default=0):,}",
        "rows with the score of another": f"{tied:,} (ordered by document id, descending)",
    }
    if not run:
        finding.faults.append("the run has no rows")
    if qrels is not None:
        judged = read_qrels(qrels)
        both = [q for q in judged if q in run]
        seen = sum(len(set(run[q].doc_ids[:10]) & judged[q].keys()) for q in both)
        finding.facts["queries with judgements"] = f"{len(both):,} of {len(judged):,}"
        if both:
            first_ten = sum(min(10, len(run[q].doc_ids)) for q in both)
            finding.facts["judged among the first ten"] = f"{seen / max(1, first_ten):.1%}"
        else:
            finding.faults.append(
                f"no query of the run is judged: the run has {name_few(run, 3)}, "
                f"the qrels {name_few(judged, 3)}"
            )


def _qrels(path: Path, finding: Finding, skips: Skips, _: Path | None) -> None:
    qrels = read_qrels(path, skips)
    grades = Counter(grade for judged in qrels.values() for grade in judged.values())
    barren = [q for q, judged in qrels.items() if not any(grade > 0 for grade in judged.values())]
    finding.facts |= {
        "queries": f"{len(qrels):,}",
        "judgements": f"{grades.total():,}",
        "grades": ", ".join(f"{grade}: {count:,}" for grade, count in sorted(grades.items())),
        "queries without a relevant document": f"{len(barren):,}"
        + (f" ({name_few(barren)})" if barren else ""),
    }
    if not qrels:
        finding.faults.append("the file has no judgements")


def _queries(path: Path, finding: Finding, skips: Skips, _: Path | None) -> None:
    queries = read_queries(path, skips)
    empty = [q.id for q in queries if not q.text.strip()]
    words = [len(q.text.split()) for q in queries]
    finding.facts |= {
        "queries": f"{len(queries):,}",
        "words a query": f"{min(words, default=0)} to {max(words, default=0)}",
    }
    if empty:
        finding.faults.append(f"{len(empty)} queries have no text: {name_few(empty)}")


def _corpus(path: Path, finding: Finding, skips: Skips, _: Path | None) -> None:
    count = empty = titled = characters = longest = 0
    for document in read_documents([path], skips):
        size = len(document.full_text)
        count, characters, longest = count + 1, characters + size, max(longest, size)
        empty += not document.full_text.strip()
        titled += bool(document.title)
    finding.facts |= {
        "documents": f"{count:,}",
        "with a title": f"{titled:,}",
        "without any text": f"{empty:,}",
        "characters a document": f"{characters / max(1, count):,.0f} on average, {longest:,} at most",
    }
    if not count:
        finding.faults.append("the corpus has no documents")


def _pairs(path: Path, finding: Finding, skips: Skips, _: Path | None) -> None:
    both_ways, labels = Contradictions(), Counter[int]()
    for line, pair in numbered_pairs(path, skips):
        both_ways.add(pair, line)
        labels[pair.label] += 1
    finding.facts |= {
        "pairs": f"{labels.total():,}",
        "labels": ", ".join(f"{label}: {count:,}" for label, count in sorted(labels.items())),
    }
    if not labels:
        finding.faults.append("the file has no labelled pair")
    finding.faults += [
        f"{path}, line {later}: the pair of line {earlier} again, but with the opposite label"
        for earlier, later in both_ways.found()
    ]
    if grades := sum(count for label, count in labels.items() if label > 1):
        finding.faults.append(
            f"{grades:,} labels are neither 0 nor 1; training counts all from 1 up as relevant"
        )


def _index(path: Path, finding: Finding, *_: object) -> None:
    index = Index.open(path)
    index.verify()
    finding.facts |= {
        "documents": f"{len(index):,}",
        "terms": f"{index.collection.tokens:,}, {index.distinct_terms():,} distinct",
        "documents without terms": f"{index.collection.documents - index.collection.with_terms:,}",
        "analyzer": index.analyzer.name,
        "segments": f"{len(index.segments)}",
        "made by": index.manifest.made_by,
        "bytes": f"{sum(f.stat().st_size for f in path.rglob('*') if f.is_file()):,}",
        "every file as written": "yes",
    }
    check_encoded(index, finding.facts, finding.faults)
    check_kept(index, finding.facts, finding.faults)


def _ciff(path: Path, finding: Finding, *_: object) -> None:
    with reading_ciff(path) as reader:
        header, lists = reader.header, sum(len(some.terms) for some in reader.lists())
        lengths = reader.documents().lengths
    finding.facts |= {
        "documents": f"{len(lengths):,}",
        "terms": f"{lengths.sum():,}, {lists:,} distinct",
        "made by": header.description or "not said",
        "read by": f"rankhouse index --ciff {path} --analyzer ... --out ...",
    }


_CHECKS: dict[str, Callable[[Path, Finding, Skips, Path | None], None]] = {
    "run": _run,
    "qrels": _qrels,
    "queries": _queries,
    "corpus": _corpus,
    "pairs": _pairs,
    "index": _index,
    "ciff": _ciff,
    "score cache": lambda path, finding, *_: check_cache(path, finding.facts),
    "judgement log": lambda path, finding, *_: check_judgement_log(path, finding.facts),
    "recipe output": lambda path, finding, *_: check_recipe_output(path, finding.facts, finding.faults),
}


def _show(findings: Sequence[Finding]) -> None:
    for finding in findings:
        state = "faulty" if finding.faults else "sound"
        head = Text(visible(finding.name), "bold").append(f": {finding.kind}, {state}", style="not bold")
        console.results.print(head, soft_wrap=True)
        _print([f"  {name}: {fact}" for name, fact in finding.facts.items()])
        _print([f"  fault: {fault}" for fault in finding.faults[:20]])
        if len(finding.faults) > 20:
            _print([f"  ... and {len(finding.faults) - 20:,} more faults"])


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        console.results.print(line, markup=False, soft_wrap=True)


def _installation() -> CommandResult:
    facts = {"rankhouse": __version__, "python": platform.python_version(), "numpy": version("numpy")}
    facts |= {"compiled kernel": "yes" if kernel.COMPILED else "no (numpy instead: same rankings, slower)"}
    if find_spec("torch") is not None:
        from rankhouse.nn import machine

        facts |= {f"computes {what}": how for what, how in machine.in_use().items()}
    facts |= {f"extra {extra}": said for extra, said in _extras().items()}
    try:
        facts["default ranker"] = default_ranker()
    except WrongUse as error:
        facts["default ranker"] = f"no; {error}"
    return CommandResult(facts, lambda: _print(f"{name}: {fact}" for name, fact in facts.items()))


def _extras() -> dict[str, str]:
    """Say of each extra which versions are here, or what is missing."""
    extras: dict[str, list[str]] = {}
    try:
        lines = requires("rankhouse") or []
    except PackageNotFoundError:
        return {}  # run from its source without having been installed
    for line in lines:
        found = re.match(r"""([\w.-]+)(.*)\bextra == ["']([\w-]+)""", line)
        machines = re.search(r"""platform_machine in ["']([\w ]+)""", line)
        if found and found[1] != "rankhouse" and found[3] not in _FOR_DEVELOPERS:
            is_left_out = sys.platform == "win32" and "Windows" in found[2]
            is_left_out |= machines is not None and platform.machine() not in machines[1].split()
            extras.setdefault(found[3], []).extend([] if is_left_out else [found[1]])
    said = {}
    for extra, names in extras.items():
        here = {name: _version(name) for name in names}
        missing = [name for name in names if not here[name]]
        install = f'no ({", ".join(missing)}); pip install "rankhouse[{extra}]"'
        said[extra] = install if missing else ", ".join(f"{name} {here[name]}" for name in names)
    return said


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        is_here = name.startswith("faiss") and find_spec("faiss")  # of a graphics processor, by another name
        return "of another package" if is_here else ""


@verb("models", "rankhouse models && rankhouse rerank --ranker default ...")
def models_command() -> CommandResult:
    """List published checkpoints whose formats are read, with licences and prompts; say what "default" is."""
    try:
        default = default_ranker()
    except WrongUse as error:
        default = f"nothing: {error}"
    rows = tuple((c.spec, c.uses, f"{c.tokens:,}", c.licence, c.prompt) for c in CHECKPOINTS)
    table = Table(("--ranker", "for", "tokens", "licence", "prompt"), rows)
    facts = {DEFAULT: default, "checkpoints": [c._asdict() | {"ranker": c.spec} for c in CHECKPOINTS]}
    return CommandResult(facts, f'"{DEFAULT}" is here: {default}', [table])
