"""What ``rh.explain`` returns, and an answer as a file: a page of HTML that stands alone, or Markdown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankhouse.core.frames import frame
from rankhouse.explanation.answer import Explanation, Part, brief, number
from rankhouse.explanation.contrast import Answer, Contrast, Movement, RankingExplanation
from rankhouse.explanation.show import ranking_table, to_html, to_markdown, to_text
from rankhouse.explanation.views import View, view_of
from rankhouse.io.outputs import writing
from rankhouse.page.charts import ending_of
from rankhouse.page.html import write_page

if TYPE_CHECKING:
    import pandas as pd

_TEMPLATE = Path(__file__).parent / "templates" / "why.html.j2"


def check_target(path: Path) -> str:
    """Return the ending of a file that an answer can be written to.

    Raises:
        WrongUse: Neither .html nor .md.
    """
    return ending_of(path, "an answer is", ".html", ".md")


def write(answer: Answer, path: Path | str) -> None:
    """Write an answer as a page or as Markdown, as the file's ending says.

    Raises:
        WrongUse: Another ending.
        MissingExtra: jinja2 is not installed, which a page needs.
        OutputFailed: The file cannot be written.
    """
    path = Path(path)
    if check_target(path) == ".md":
        with writing(path) as out:
            out.write(to_markdown(answer))
        return
    write_page(_TEMPLATE, content_of(answer), path)


def content_of(answer: Answer) -> dict[str, object]:
    """Return what the templates ``why.html.j2`` and ``answer.html.j2`` show of an answer.

    Its notes are those that belong to no section.
    """
    sections, table = _sections(answer)
    return {
        "title": title_of(answer),
        "query": answer.query,
        "sentence": answer.sentence(),
        "sections": sections,
        "table": table,
        "notes": answer.notes if isinstance(answer, RankingExplanation | Movement) else (),
    }


def title_of(answer: Answer) -> str:
    """Return the heading of an answer's page."""
    match answer:
        case Contrast():
            place = "below" if answer.score < 0 else "above"
            place = "beside" if answer.is_rounding else place
            return f"Why {answer.first.doc_id} stands {place} {answer.second.doc_id}"
        case Explanation():
            return f"Why {answer.doc_id} scores {brief(number(answer.score))}"
        case Movement():
            return f"Why {answer.doc_id} {'stayed' if answer.before.rank == answer.after.rank else 'moved'}"
        case RankingExplanation():
            return f"Why this order: {answer.run}"


def _sections(answer: Answer) -> tuple[list[tuple[str, View]], object]:
    """Return (heading, view) of each section, and a table to stand above them or None."""
    match answer:
        case Movement():
            both = ((answer.after, answer.now), (answer.before, answer.then))
            return [(one.sentence(), view_of(told)) for one, told in both if told is not None], None
        case RankingExplanation():
            ranked = zip(answer.ranks, answer.documents, strict=True)
            return [(f"{rank}. {told.doc_id}", view_of(told)) for rank, told in ranked], ranking_table(answer)
        case _:
            return [("", view_of(answer))], None


class ExplainResult:
    """An answer that prints, is shown in a notebook, converts, and is saved as a page.

    Attributes:
        answer: The explanation, contrast, ranking or movement behind it.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    @property
    def parts(self) -> tuple[Part, ...]:
        """The addends of the score or of the difference; none of a whole ranking."""
        match self.answer:
            case RankingExplanation():
                return ()
            case Movement():
                return self.answer.now.parts
            case _:
                return self.answer.parts

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def __getitem__(self, place: int | slice) -> Part | tuple[Part, ...]:
        return self.parts[place]

    def __len__(self) -> int:
        return len(self.parts)

    def __bool__(self) -> bool:
        return True  # an explanation without parts is one too

    @property
    def score(self) -> float:
        """The score, or the difference of two; of a whole ranking the first document's."""
        match self.answer:
            case RankingExplanation():
                return self.answer.documents[0].score if self.answer.documents else 0.0
            case Movement():
                return self.answer.now.score
            case _:
                return self.answer.score

    def sentence(self) -> str:
        """Return the answer in words."""
        return self.answer.sentence()

    def __str__(self) -> str:
        return to_text(self.answer)

    def __repr__(self) -> str:
        return f"<ExplainResult: {self.sentence()}>"

    def _repr_html_(self) -> str:
        return to_html(self.answer)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, as ``rankhouse explain --json`` writes them."""
        return self.answer.to_dict()

    def to_frame(self) -> pd.DataFrame:
        """Return one row a part: name, value, note; of a ranking one a document: doc_id, score, note."""
        if isinstance(self.answer, RankingExplanation):
            told = [
                {"doc_id": d.doc_id, "score": d.score, "note": d.sentence()} for d in self.answer.documents
            ]
            return frame(told, ("doc_id", "score", "note"))
        rows = [{"name": part.name, "value": part.value, "note": part.note} for part in self.parts]
        return frame(rows, ("name", "value", "note"))

    def to_markdown(self) -> str:
        """Return it as Markdown."""
        return to_markdown(self.answer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a page (.html) or as Markdown (.md).

        Raises:
            WrongUse: Another ending.
            OutputFailed: The file cannot be written.
        """
        write(self.answer, Path(path))
