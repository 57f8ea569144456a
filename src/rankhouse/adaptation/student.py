"""Second stage of adapting: a student is begun, and trained on the candidates within the time given."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
import torch
from torch import nn

from rankhouse.adaptation.mining import MINING_SHARE
from rankhouse.adaptation.options import (
    CROSSED,
    ELSEWHERE,
    LISTS,
    LONG,
    LONG_FROM,
    MARGINS,
    QUESTIONS,
    STEPS,
    WINDOW_RATES,
    Adaptation,
    AdaptOptions,
    design_of,
)
from rankhouse.adaptation.questions import Questions, pairs_of
from rankhouse.adaptation.teacher import encoders_of, needs_texts, write_word_vectors
from rankhouse.core import notation
from rankhouse.core.errors import RankhouseWarning
from rankhouse.core.nouns import Query, Ranker, TextEncoder
from rankhouse.core.progress import Progress, clock, say
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.io.checksums import write_checked
from rankhouse.io.decoding import read_own
from rankhouse.io.trec import read_qrels, write_qrels
from rankhouse.labels.soft_scores import members_of
from rankhouse.models.contract import Model
from rankhouse.models.families import DESIGNS, FAMILIES
from rankhouse.models.tk import TK, TKDesign, WindowHead
from rankhouse.nn.machine import ProcessorTime, choose
from rankhouse.ranking.rerank import Plan
from rankhouse.systems.rankers import with_default
from rankhouse.systems.teachers import SystemTeacher
from rankhouse.text.vocabulary import Vocabulary
from rankhouse.text.words import splitter
from rankhouse.training.examples import Examples, from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.folder import TrainingOutcome
from rankhouse.training.optimizer import Moment
from rankhouse.training.settings import Settings, defaults
from rankhouse.training.steps import Stepper
from rankhouse.training.teacher_batches import batches_for
from rankhouse.training.teaching import begin, texts_of
from rankhouse.training.validation import Validation

WORDS, TAUGHT, STEPS_FILE = "words.txt", "taught.qrels", "steps.json"
_BEST = 3
"""Documents that the teacher puts first count as relevant to a held-out question."""
_READING_SHARE, _FEWEST_READ = 0.05, 10
_MIX = 0.9
"""The share of a word's own vector that a TK begins with: the teacher made it, its context is drawn."""


class HeldOut(NamedTuple):
    """Questions that are not learned: to choose the best by, and to weigh student and first stage."""

    queries: list[Query]
    first: Run  # what the first stage finds
    own: Qrels
    taught: Qrels  # the teacher's best documents among those of the first stage

    def few(self, most: int) -> HeldOut:
        """Return at most so many of the questions."""
        queries = self.queries[:most]
        ids = [query.id for query in queries]
        own, taught = ({query_id: qrels[query_id] for query_id in ids} for qrels in (self.own, self.taught))
        return HeldOut(queries, self.first.restrict(ids), own, taught)

    def validation(self, index: Index, among: Run | None = None, *, own: bool = True) -> Validation:
        """Return what a student is validated on, among what the first stage finds, or other candidates.

        That is the teacher's best, and, if ``own``, the question's own document: an encoder that learns to
        find it may keep the teacher's order as it was, and the other way round.
        """
        run = self.first if among is None else among.restrict([query.id for query in self.queries])
        plan = Plan(depth=min(50, max(len(ranking.doc_ids) for ranking in run.values())))
        grades = {query_id: dict(best) for query_id, best in self.taught.items()}
        for query_id, doc_ids in self.own.items() if own else ():
            for doc_id in doc_ids:
                grades[query_id][doc_id] = grades[query_id].get(doc_id, 0) + _BEST
        return Validation(run, self.queries, grades, index.documents, plan=plan)


def held_out(job: Adaptation, found: Questions) -> HeldOut:
    """Let the teacher read what the first stage finds for the questions that are held out.

    A twentieth of the minutes is for this reading, or ten questions.
    """
    path, minutes = job.folder / QUESTIONS / TAUGHT, job.options.minutes
    drawn, first = [query for query in found.queries if query.id in found.first], found.first
    if not path.exists():
        began, progress = time.monotonic(), job.show("reading what is held out")
        taught: dict[str, dict[str, int]] = {}
        for done, query in enumerate(drawn):
            progress(done, len(drawn))
            if minutes and done >= _FEWEST_READ and time.monotonic() - began > 60 * _READING_SHARE * minutes:
                break
            doc_ids = first[query.id].doc_ids
            scores = found.teacher.score(pairs_of(query, doc_ids, job.index.documents))
            best = sorted(zip(-scores, doc_ids, strict=True))[:_BEST]
            taught[query.id] = {doc_id: _BEST - place for place, (_, doc_id) in enumerate(best)}
        write_qrels(taught, path)
    known = read_qrels(path)
    drawn = [query for query in drawn if query.id in known]
    own = {query.id: found.own[query.id] for query in drawn}
    return HeldOut(drawn, first.restrict([query.id for query in drawn]), own, known)


def begin_student(job: Adaptation) -> Model[Any]:
    """Return the student before its training; one that knows words by number starts from the teacher's.

    Of several teachers the first that encodes texts encodes the words.
    """
    index, options, spec = job.index, job.options, job.options.ranker
    design, windowed = design_of(spec), _in_windows(spec)
    if design or windowed is not None:
        path = job.folder / WORDS
        encoder = None if path.exists() else next(encoders_of(job.teacher), None)
        if encoder is not None:
            split = splitter("blingfire")
            counted = Vocabulary.count((split(d.full_text) for d in index.documents.stream()), 2)
            write_word_vectors(encoder, counted.words, path, options.width)
        vectors = f", vectors={str(path)!r}" if path.exists() else f", width={options.width}"
        spec = design.format(vectors=vectors) if design else spec
    if windowed is None:
        model = begin(with_default(spec), texts_of(index), options.seed)
    else:
        words = {"vectors": str(path)} if path.exists() else {"width": options.width}
        model = replace(windowed, **words).fresh(texts_of(index), options.seed)
    if isinstance(model, TK) and (design or windowed is not None):
        with torch.no_grad():
            model.mix.fill_(_MIX)
    if isinstance(model, TK) and isinstance(model.head, WindowHead) and not Path(spec).is_dir():
        model.head.begin_upwards()
    return model


def try_student(spec: str) -> None:
    """Refuse a student that cannot be begun, before anything is prepared for it."""
    if design_of(spec):
        return
    if Path(spec).is_dir() or spec.partition("(")[0].strip() not in DESIGNS:
        begin(with_default(spec), ())
    else:
        notation.make(spec, DESIGNS, "ranker")


def _in_windows(spec: str) -> TKDesign | None:
    """Return the design of a new TK in windows that says nothing of its word vectors; None for any other."""
    if spec.partition("(")[0].strip() != "tk" or Path(spec).is_dir():
        return None
    made = cast(TKDesign, notation.make(spec, DESIGNS, "ranker"))
    is_bare = made.windows and not made.vectors and not made.start and made.width == TKDesign.width
    return made if is_bare else None


def examples_of(found: Questions, index: Index) -> Examples:
    """Lay out the questions that are learned, those without a first stage; candidates; the teacher."""
    out = set(found.first)
    learned = [query for query in found.queries if query.id not in out]
    examples = from_judgements(learned, found.own, index.documents, found.candidates, unjudged=True)
    return replace(examples, teacher=found.teacher)


def settings_of(
    family: str, teacher: Ranker, options: AdaptOptions, model: Model[Any] | None = None
) -> Settings:
    """Return the settings: the family's own, the recipe, what differs; some are of the student's sizes."""
    changes = dict(FAMILIES[family].adaptation or MARGINS)
    if isinstance(model, TK) and model.design.windows:
        changes["rates"] = {**changes["rates"], **WINDOW_RATES}
    if not needs_texts(teacher):
        changes |= FAMILIES[family].crossed or (CROSSED if design_of(family) else {})
        if design_of(family) and model is not None and model.policy["passage_length"] >= LONG_FROM:
            changes |= LONG
    elif design_of(family):
        changes |= LISTS
    changes |= {"seed": options.seed, "overlap": "allow", "validate_every": "steps", **options.settings}
    own = defaults(family)
    if changes.get("precision") == "auto":
        changes["precision"] = choose(device=str(changes.get("device", own.device))).precision
    return own.but(**changes)


def teach(
    model: Model[Any],
    examples: Examples,
    settings: Settings,
    folder: Path,
    validation: Validation,
    progress: Progress,
) -> TrainingOutcome:
    """Teach the student; a killed training resumes. It is said where other programs slowed it down."""
    settings, began = settings.but(epochs=settings.steps), ProcessorTime.now()  # each has a step or more
    with warnings.catch_warnings():
        # Remarks compare with the first stage as if the student were used alone; they stand in outcome.json.
        warnings.simplefilter("ignore", RankhouseWarning)
        outcome = fit(model, examples, settings, folder, validation=validation, progress=progress)
    others = ProcessorTime.now().share_of_others(began)
    if others >= _CONTENTION and time.monotonic() - began.clock > _NOTICED:
        say(
            f"other programs had {others:.0%} of the processor while the student was taught, which took "
            f"{clock(time.monotonic() - began.clock)}"
        )
    return outcome


LEAST_STEPS: Final = 50
_VALIDATIONS: Final = 12
"""Of a training: the untaught student, ten on the way, the last."""
_SLACK: Final = 1.05
"""Steps take so much longer than measured: reading ahead, the log, checkpoints."""
_SHARES: Final = {"validation": 0.1, "weighing": 0.05}
"""Of what time is left, so that two thirds of all minutes are for steps."""
_FEWEST: Final = {"validation": 10, "weighing": 20}
"""Questions, even where they take longer."""
_TIMED, _PAIRS = 12, 64
_MEASURING: Final = 0.03
"""Of the minutes, for measuring steps; two at least are taken."""
_UNTAUGHT: Final = 0.5
"""Share of the weights that an encoder began with in what is kept."""
_CONTENTION: Final = 0.25
"""Share of the processor that other programs have, from which on it is said."""
_NOTICED: Final = 60.0
"""Seconds of a training that others slow down, from which on it is said."""
_TIMING: Final = 20.0
"""Seconds for it where there are no minutes: it only says how long the steps will take."""


class Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """Schedule of a training, fixed once all questions are there; in ``steps.json``."""

    steps: int
    step: float  # seconds of one, mining included
    validation: int  # held-out questions that each validation asks
    weighing: int  # held-out questions that the student's weight is chosen on
    afterwards: float  # seconds of all that is no step
    minutes: float = 0.0  # that all of it is planned for; 0 without a limit
    own: bool = False  # whether validations count the questions' own documents; not in earlier versions
    untaught: float = 0.0  # share of its own weights that an encoder keeps if it knew something; 0 earlier
    added: list[int] = []  # steps of the trainings that go on from there, one after the other

    @property
    def total(self) -> int:
        """Steps of all trainings."""
        return self.steps + sum(self.added)


@dataclass(frozen=True)
class StudentTraining:
    """The student, its examples and settings, and the held-out questions."""

    model: Model[Any]
    examples: Examples
    settings: Settings
    apart: HeldOut


def timetable(job: Adaptation, work: StudentTraining, began: float) -> Timetable:
    """Return how many steps are taken, as given or as many as fit; decided once, and said."""
    path = job.folder / STEPS_FILE
    if path.exists():
        return read_own(path, Timetable, ELSEWHERE)
    settled = _settle(job, work, began)
    seconds = settled.steps * settled.step + settled.afterwards
    say(
        f"{len(work.examples.queries):,} questions to learn from; {settled.steps:,} steps of "
        f"{settled.step:.2f} s, about {clock(seconds)} from now"
    )
    write_checked(path, settled)
    return settled


def go_on(job: Adaptation, work: StudentTraining, settled: Timetable) -> Timetable:
    """Return the timetable with the steps that raised steps or minutes add; kept, and said."""
    options, more = job.options, 0
    if options.steps:
        more = options.steps - settled.total
    elif (minutes := options.minutes - settled.minutes) > 0 < settled.minutes:
        step = _SLACK * seconds_a_step(work, 60 * _MEASURING * minutes)
        more = max(LEAST_STEPS, int((60 * minutes - settled.afterwards) / step))
    if more <= 0:
        return settled
    say(f"{more:,} more steps after {settled.total:,}, from the best so far; the rate rises and falls again")
    limit = 0.0 if options.steps else options.minutes
    settled = msgspec.structs.replace(settled, added=[*settled.added, more], minutes=limit)
    write_checked(job.folder / STEPS_FILE, settled)
    return settled


def _settle(job: Adaptation, work: StudentTraining, began: float) -> Timetable:
    index, options = job.index, job.options
    limited = options.minutes and not options.steps
    step = _SLACK * seconds_a_step(work, 60 * _MEASURING * options.minutes if limited else _TIMING)
    step *= 1 + MINING_SHARE * options.mine
    ranker, everyone = ranker_of(work), len(work.apart.queries)
    read, once = seconds_a_pair(ranker, work.apart, index), isinstance(ranker, TextEncoder)
    test = 0.0
    if job.test is not None:
        systems = any(isinstance(one, SystemTeacher) for one in members_of(job.teacher))
        teacher = work.examples.teacher if systems else None  # a system ranks quicker than others read
        each = read + seconds_a_pair(teacher or job.teacher, work.apart, index)
        test = len(job.test.queries) * options.depth * each
    left = 60 * options.minutes - (time.monotonic() - began)
    first = work.apart.first
    rows = [_to_read(run, once=once) for run in (first.top(work.apart.validation(index).plan.depth), first)]
    times = (1 + options.mine) * _VALIDATIONS, 1
    one = {name: n * k * read / everyone for name, n, k in zip(_SHARES, rows, times, strict=True)}
    asked = dict.fromkeys(one, everyone)
    if limited:
        fitting = {name: int(_SHARES[name] * left / one[name]) if one[name] else everyone for name in one}
        asked = {name: min(everyone, max(_FEWEST[name], fitting[name])) for name in one}
    afterwards = test + sum(asked[name] * one[name] for name in one)
    steps = options.steps or STEPS
    if limited:
        steps = max(LEAST_STEPS, int((left - afterwards) / step))
        if left - afterwards < LEAST_STEPS * step:
            say(
                f"warning: asking, encoding and measuring take most of the {options.minutes:g} minutes; "
                f"{LEAST_STEPS} steps are taken anyway and teach little: give more minutes"
            )
    limit = options.minutes if limited else 0.0
    return Timetable(
        steps=steps,
        step=round(step, 4),
        validation=asked["validation"],
        weighing=asked["weighing"],
        afterwards=round(afterwards, 1),
        minutes=limit,
        own=True,
        untaught=_UNTAUGHT if once else 0.0,
    )


def _to_read(run: Run, *, once: bool) -> int:
    """Return how many documents of a run a ranker reads; an encoder reads each ``once`` for all questions."""
    lists = [ranking.doc_ids for ranking in run.values()]
    return len(set().union(*lists)) if once else sum(map(len, lists))


def ranker_of(work: StudentTraining) -> Ranker:
    """Return the student as it is now, put to work in the precision that it is taught in."""
    compute = choose(work.settings.precision, work.settings.device)
    return FAMILIES[work.model.family].ranker(work.model, compute)


def seconds_a_step(work: StudentTraining, most: float) -> float:
    """Measure a step, the first ones left out, in ``most`` seconds; weights are put back."""
    network, began = cast(nn.Module, work.model), ProcessorTime.now()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    stepper = Stepper(work.model, work.settings)
    batches = batches_for(work.examples, work.model.objective, work.settings)
    times: list[float] = []
    for number, tasks in enumerate(islice(batches.plan(0), _TIMED)):
        started = time.perf_counter()
        stepper.step(stepper.encode(tasks), Moment(number, 10 * _TIMED, 0))
        times.append(time.perf_counter() - started)
        if len(times) > 1 and sum(times) > most:
            break
    network.load_state_dict(before)
    network.zero_grad(set_to_none=True)
    if (others := ProcessorTime.now().share_of_others(began)) >= _CONTENTION:
        say(
            f"warning: other programs have {others:.0%} of the processor: steps take longer than without "
            "them, and fewer fit into --minutes"
        )
    timed = times[-(-len(times) // 3) :] or times
    return sum(timed) / max(1, len(timed))


def seconds_a_pair(ranker: Ranker, apart: HeldOut, index: Index) -> float:
    """Measure how long a ranker takes to read a pair."""
    each = 2 * _PAIRS // len(apart.queries) + 1
    asked = ((query, apart.first[query.id].doc_ids[:each]) for query in apart.queries)
    pairs = [p for query, ids in asked for p in pairs_of(query, ids, index.documents)][: 2 * _PAIRS]
    ranker.score(pairs[::2])  # the first call starts things
    timed = pairs[1::2] or pairs
    started = time.perf_counter()
    ranker.score(timed)
    return (time.perf_counter() - started) / len(timed)
