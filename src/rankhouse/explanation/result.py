"""What ``rh.explain`` returns: an answer that people look at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rankhouse.explanation import report, show
from rankhouse.explanation.answer import Part
from rankhouse.explanation.rankings import Answer, Movement, RankingExplanation


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
        return show.to_text(self.answer)

    def __repr__(self) -> str:
        return f"<ExplainResult: {self.sentence()}>"

    def _repr_html_(self) -> str:
        return show.to_html(self.answer)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, as ``rankhouse explain --json`` writes them."""
        return self.answer.to_dict()

    def to_markdown(self) -> str:
        """Return it as Markdown."""
        return show.to_markdown(self.answer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a page (.html) or as Markdown (.md).

        Raises:
            WrongUse: Another ending.
            OutputFailed: The file cannot be written.
        """
        report.write(self.answer, Path(path))
