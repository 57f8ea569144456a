"""Options of teaching a student without judgements: what is asked, what is learned, and the time allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Final

from rankhouse.core.arguments import Option, check_least
from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.progress import Progress
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.io.files import PathLike
from rankhouse.io.inputs import QrelsLike, QueriesLike, RunLike, as_qrels, as_queries, as_run
from rankhouse.labels.pseudo_queries import PseudoOptions
from rankhouse.labels.round_trip import Round
from rankhouse.models.families import FAMILIES
from rankhouse.systems.teachers import Join, TeacherLike, open_teacher

CROSSED: Final[dict[str, Any]] = {"crossed": True, "batch": 2, "count": 25}
"""Batches of a designed student whose teacher has vectors: some 50 questions, 50 documents."""
LONG: Final[dict[str, Any]] = {"batch": 1, "count": 15}
"""What differs where it reads long documents: some 16 of each, since every pair of them costs."""
WINDOW_RATES: Final = {"head.scales": 1e-4}
"""Of a TK in windows, whose scores are exponentials: at the rate of its other weights they run away."""
LONG_FROM: Final = 400
"""Words that it reads, from which on documents are long."""
LISTS: Final[dict[str, Any]] = {"batch": 16, "count": 7}
"""Its batches where the teacher reads every pair."""

MARGINS: Final[dict[str, Any]] = {"loss": "margin-mse", "clip": 1.0, "measure": "nDCG@10", "patience": 0}
"""Settings of a family that has none of its own for an adaptation."""

Show = Callable[[str], Progress]
"""Names a stage of the work -> its progress callback."""

_LIMITS: Final = Round(first=60, best=20)
STEPS: Final = 4000
"""Steps where neither steps nor minutes are given."""

TEACHERS_SHARE: Final = 0.15
"""Of the minutes, for what a teacher reads or ranks before the training, and for writing questions."""

_OWN: Final = {
    "steps": "give --steps or --minutes",
    "epochs": "give --steps or --minutes; epochs follow from them",
    "seed": "give --seed, of all that is drawn",
}
"""Settings of a training that an adaptation decides for all its parts."""


def design_of(ranker: str) -> str:
    """Return the design that a bare family's name stands for here; "" for anything else."""
    return FAMILIES[ranker].student if ranker in FAMILIES else ""


@dataclass(frozen=True)
class AdaptOptions:
    """Options of an adaptation; ``rankhouse adapt`` shows their help texts."""

    ranker: Annotated[str, Option("The student: tk, knrm, another design, or a checkpoint.", "source")] = "tk"
    pseudo: PseudoOptions = field(default_factory=PseudoOptions)  # what documents ask
    doc2query: Annotated[
        str, Option("A T5 that writes further questions: a folder or a hub name.", "source")
    ] = ""
    questions: Annotated[int, Option("At most this many pseudo-queries.", least=1)] = 100_000
    limits: Round = _LIMITS  # of the round trip, for a teacher with vectors; others read the first 20 only
    first_stage: Annotated[
        str, Option("What finds candidates and is fused with the student; as search's --model.")
    ] = "bm25(k1=0.9, b=0.4)"
    candidates: int = 60  # documents of the first stage that a question is learned on
    neighbours: int = 40  # documents besides that the teacher's own vectors find, where it has any
    depth: Annotated[int, Option("Documents to rerank.", least=1)] = 100
    held_out: Annotated[
        int, Option("Questions not learned, for validation and the student's weight.", least=1)
    ] = 100
    width: int = 256  # numbers of a word's start vector, from the teacher
    mine: Annotated[
        int, Option("Number of times during training that the student itself chooses candidates.", least=0)
    ] = 0
    steps: Annotated[int, Option("Training steps.", least=0, default="4000, or by --minutes")] = 0
    minutes: Annotated[float, Option("Most minutes that everything may take.", default="no limit")] = 0.0
    settings: Mapping[str, object] = field(default_factory=dict)  # what differs from the family's recipe
    seed: Annotated[int, Option("Of all random draws.", least=0, most=2**32 - 1)] = 0

    def __post_init__(self) -> None:
        check_least(self, 1, "questions", "candidates", "depth", "held_out", "width")
        check_least(self, 0, "minutes", "steps", "neighbours", "mine")
        known = self.steps or (0 if self.minutes else STEPS)
        if known and self.mine >= known:
            raise WrongUse(
                f"mine={self.mine}: a training of {known:,} steps has at most {known - 1:,} places between "
                "steps for it; choose fewer, or give more steps"
            )
        for name, advice in _OWN.items():
            if name in self.settings:
                raise WrongUse(f"{name}={self.settings[name]} is no setting of the student here: {advice}")


QUESTIONS: Final = "questions"
"""The folder of the questions, within that of the adaptation."""
ELSEWHERE: Final = "put it back from a copy, or adapt into another folder"


@dataclass(frozen=True)
class JudgedQuestions:
    """Judged questions to measure by: kept apart from what is learned."""

    queries: Sequence[Query]  # their texts
    qrels: Qrels  # their judgements
    run: Run | None = None  # what is reranked for them; None: what the first stage finds

    def __post_init__(self) -> None:
        if self.run is not None and not any(query.id in self.run for query in self.queries):
            raise BadData(
                f"the run to be reranked has none of the {len(self.queries):,} test queries: it has "
                f"{name_few(self.run, quoted=True) or 'none'}; give the run of these queries"
            )


@dataclass(frozen=True)
class Adaptation:
    """One adaptation: what it learns from and how, and where it is written."""

    index: Index
    teacher: Ranker
    folder: Path
    options: AdaptOptions
    show: Show
    people: Sequence[Query] = ()  # questions of people, without judgements, learned besides
    test: JudgedQuestions | None = None  # its questions are not learned
    weighing: JudgedQuestions | None = None  # the student's weight is chosen on them, too

    @property
    def tested(self) -> Sequence[Query]:
        """The test's questions, which must not be learned."""
        return self.test.queries if self.test else ()


@dataclass(frozen=True, kw_only=True)
class AdaptJob(AdaptOptions):
    """The options of ``rankhouse adapt`` and ``rh.adapt``."""

    index: Annotated[PathLike | Index, Option("The index that holds the documents.", "input")]
    teachers: Annotated[
        tuple[TeacherLike, ...],
        Option(
            'Whose scores to learn: default, biencoder("DIR"), a folder, a system ("bm25 + dense(default)"). '
            "Repeat for more; their scores are joined. One may be a run with scores for --queries.",
            "source",
            flag="--teacher",
        ),
    ]
    join: Join = "z-score"
    queries: Annotated[
        QueriesLike | None, Option("Real questions without judgements, to learn from as well.", "source")
    ] = None
    test_queries: Annotated[
        QueriesLike | None, Option("Judged questions to measure by; nothing is learned from them.", "source")
    ] = None
    test_qrels: Annotated[QrelsLike | None, Option("Their judgements.", "input")] = None
    test_run: Annotated[
        RunLike | None, Option("The run to rerank for them.", "input", default="what --first-stage finds")
    ] = None
    weight_queries: Annotated[
        QueriesLike | None, Option("Judged questions that choose the student's weight, too.", "source")
    ] = None
    weight_qrels: Annotated[QrelsLike | None, Option("Their judgements.", "input")] = None
    kinds: Annotated[str, Option("Kinds of pseudo-queries.")] = ",".join(PseudoOptions.kinds)
    cache: Annotated[
        Path | None, Option("Folder for the scores of a teacher without vectors.", "local", neutral=True)
    ] = None
    changes: Annotated[
        tuple[str, ...], Option("Any setting of the training.", flag="--set", metavar="NAME=VALUE")
    ] = ()

    def judged(self, option: str) -> JudgedQuestions | None:
        """Read the questions of "test" or "weight"; WrongUse without their judgements, or for these alone."""
        queries, qrels = getattr(self, f"{option}_queries"), getattr(self, f"{option}_qrels")
        if (queries is None) != (qrels is None):
            raise WrongUse(f"a {option} needs both --{option}-queries and --{option}-qrels")
        if queries is None:
            return None
        run = self.test_run if option == "test" else None
        return JudgedQuestions(as_queries(queries), as_qrels(qrels), None if run is None else as_run(run))

    def adaptation(
        self, folder: Path, settings: Mapping[str, object], show: Show, stack: ExitStack
    ) -> Adaptation:
        """Read the inputs, and open the teachers for as long as ``stack``; ``settings`` are ``--set``'s."""
        pseudo = PseudoOptions(tuple(re.split(r"\s*,\s*", self.kinds.strip())), seed=self.seed)
        given = {one.name: getattr(self, one.name) for one in fields(AdaptOptions)}
        return Adaptation(
            index=self.index if isinstance(self.index, Index) else Index.open(Path(self.index)),
            teacher=open_teacher(self.teachers, self.join, self.cache, stack, encoders=False),
            folder=folder,
            options=AdaptOptions(**given | {"pseudo": pseudo, "settings": settings}),
            show=show,
            people=[] if self.queries is None else as_queries(self.queries),
            test=self.judged("test"),
            weighing=self.judged("weight"),
        )
