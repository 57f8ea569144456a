"""rankhouse demo: the whole pipeline on Python's own documentation."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Annotated

from rich.padding import Padding
from rich.text import Text

from rankhouse.cli import console
from rankhouse.cli.commands.search import print_stretch
from rankhouse.cli.options import verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import visible
from rankhouse.core.nouns import Query, SearchResult
from rankhouse.core.qrels import judgements
from rankhouse.demo.run import BASELINE, SHOWN, DemoResult, run_demo
from rankhouse.evaluation.report import means_table, records
from rankhouse.explanation.contrast import Contrast, Movement
from rankhouse.page.tables import CommandResult
from rankhouse.systems.execution import with_snippets

_ANSWERS = 3
_GRADES = {2: "answers the question", 1: "helps", 0: "does not help"}


@verb("demo", "rankhouse demo --out demo")
def command(
    *,
    out: Annotated[Path, Option("The folder to work in.", "local")] = Path("demo"),
    lexical: Annotated[bool, Option("Only the lexical systems: no MiniLM, a few seconds.")] = False,
) -> CommandResult:
    """Index Python's documentation as found on this machine, ask it questions, and evaluate the answers."""
    started = time.perf_counter()
    result = run_demo(out, lexical=lexical)
    seconds = time.perf_counter() - started
    counts = {"documents": len(result.index), "questions": len(result.questions)}
    counts |= {"judgements": judgements(result.qrels), "absent": result.absent}
    facts = {
        "seconds": round(seconds, 1), "method": result.comparison.method, "cells": records(result.comparison),
        "why": result.why.sentence(),
    }  # fmt: skip

    def show() -> None:
        show_result(result)
        console.say(f"\nall of this took {seconds:.0f} s and is in {out}")
        show_next_steps(out, has_pages=result.has_pages, has_teacher="dense" in result.runs)

    return CommandResult(counts | facts, show)


def show_result(result: DemoResult) -> None:
    """Print the table, the answers to three questions, and why one document stands where it stands."""
    console.results.print()
    title = f"{len(result.comparison.systems)} ways to rank Python's documentation"
    console.print_table(means_table(result.comparison), title)
    asked = {question.id: question for question in result.questions}
    for query_id in SHOWN:
        best = result.runs[BASELINE].top(_ANSWERS)[query_id]
        answers = with_snippets(result.index, asked[query_id].text, best)
        _show_answers(answers, asked[query_id], result.qrels[query_id])
    _show_why(result.why)


def _show_answers(answers: SearchResult, question: Query, grades: Mapping[str, int]) -> None:
    """Print the first answers to one question: titles, snippets, and what the judge said of each."""
    console.results.print(Text(f"\n{question.text}?", style="bold cyan"))
    for hit in answers.hits:
        grade = _GRADES[grades[hit.doc_id]] if hit.doc_id in grades else "not judged"
        head = Text(f"{hit.rank:>3}  ", style="dim")
        head.append(hit.title, style="bold")
        head.append(f"  ({grade})", style="green" if grades.get(hit.doc_id) else "dim")
        console.results.print(head, soft_wrap=True)
        print_stretch(hit)
    best = [doc_id for doc_id, grade in grades.items() if grade == max(grades.values(), default=0)]
    if best and not set(best) & set(answers.doc_ids):
        console.results.print(Text(f"     what would answer it: {', '.join(best[:4])}", style="dim"))


def _show_why(answer: Movement | Contrast) -> None:
    sentences = [answer.sentence()]
    if isinstance(answer, Movement):
        sides = ((answer.after, answer.now), (answer.before, answer.then))
        sentences += [f"{standing.run}: {one.sentence()}" for standing, one in sides if one is not None]
    console.results.print(Text(f"\nand why? {visible(answer.query.text)}?", style="bold cyan"))
    for sentence in sentences:
        console.results.print(Padding(Text(visible(sentence)), (0, 0, 0, 5)), width=100)


def show_next_steps(out: Path, *, has_pages: bool, has_teacher: bool) -> None:
    """Say what to type next; every line works as it stands, also where the command is not on the path."""
    called = sys.argv[0]
    is_hidden = Path(called).name == "rankhouse" and not which("rankhouse")
    program = shlex.quote(called) if is_hidden else "rankhouse"
    names = ("index", "questions.jsonl", "judgements.txt", "jm.run", "report.html", "why.html", "tk")
    index, questions, judged, new, page, why, tk = (shlex.quote(str(out / name)) for name in names)
    old = shlex.quote(str(out / f"{BASELINE}.run"))
    console.say("\nwhat to type next:")
    if has_pages:
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
