"""Second stage of adapting: a pupil is begun, and taught on the questions' candidates."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import torch
from torch import nn

from rankhouse.app.adapt.options import CROSSED, DESIGNS, LISTS, MARGINS, RECIPES, AdaptOptions, Show
from rankhouse.app.adapt.questions import Questions
from rankhouse.app.adapt.teacher import needs_texts, write_word_vectors
from rankhouse.app.teaching import begin
from rankhouse.core.errors import RankhouseWarning
from rankhouse.core.nouns import Encoder, Pair, Passage, Query, Ranker, TextEncoder
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.labels.joined_teachers import members_of
from rankhouse.models.contract import Model
from rankhouse.models.tk import TK
from rankhouse.ranking.rerank_plan import Plan
from rankhouse.text.vocabulary import Vocabulary
from rankhouse.text.words import splitter
from rankhouse.training.any_batches import batches_for
from rankhouse.training.batches import shape_of
from rankhouse.training.examples import Examples, from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.learning_rate import Moment
from rankhouse.training.settings import Settings, defaults
from rankhouse.training.state import Outcome
from rankhouse.training.steps import Stepper
from rankhouse.training.validation import Validation

WORDS: Final = "words.txt"
_TIMED = 12
_BEST = 3
"""Documents that the teacher puts first count as relevant to a held-out question."""
_MIX = 0.9
"""The share of a word's own vector that a TK begins with: the teacher made it, its context is drawn."""


class HeldOut(NamedTuple):
    """Questions that are not learned, to choose the best by and to weigh the pupil against the first stage.

    Attributes:
        queries: The questions.
        first: What the first stage finds.
        own: Their own documents.
        taught: The teacher's best documents among those of the first stage.
    """

    queries: list[Query]
    first: Run
    own: Qrels
    taught: Qrels


def held_out(found: Questions, index: Index) -> HeldOut:
    """Let the teacher read what the first stage finds for the questions that are held out.

    Args:
        found: All questions.
        index: The documents.
    """
    drawn, first = [query for query in found.queries if query.id in found.first], found.first
    taught: dict[str, dict[str, int]] = {}
    for query in drawn:
        doc_ids = first[query.id].doc_ids
        pairs = [Pair(query, Passage(d, 0, index.documents[d].full_text)) for d in doc_ids]
        best = sorted(zip(-found.teacher.score(pairs), doc_ids, strict=True))[:_BEST]
        taught[query.id] = {doc_id: _BEST - place for place, (_, doc_id) in enumerate(best)}
    return HeldOut(drawn, first, {query.id: found.own[query.id] for query in drawn}, taught)


def begin_pupil(index: Index, teacher: Ranker, folder: Path, options: AdaptOptions) -> Model[Any]:
    """Return the pupil before the first lesson; one that knows words by number starts from the teacher's.

    Args:
        index: The documents, whose words are counted.
        teacher: Encodes words, where it encodes texts; the first that does, of several.
        folder: Where word vectors are written.
        options: The pupil, and the width of its vectors.
    """
    spec = options.ranker
    if spec in DESIGNS:
        path = folder / WORDS
        encoder = next((one for one in members_of(teacher) if isinstance(one, TextEncoder)), None)
        if encoder is not None and not path.exists():
            split = splitter("blingfire")
            counted = Vocabulary.count((split(d.full_text) for d in index.documents.stream()), 2)
            write_word_vectors(cast(Encoder, encoder), counted.words, path, options.width)
        vectors = f", vectors={str(path)!r}" if path.exists() else f", width={options.width}"
        spec = DESIGNS[spec].format(vectors=vectors)
    model = begin(spec, index, options.seed)
    if isinstance(model, TK) and options.ranker in DESIGNS:
        with torch.no_grad():
            model.mix.fill_(_MIX)
    return model


def examples_of(found: Questions, index: Index, apart: HeldOut) -> Examples:
    """Lay out the questions that are learned, with their candidates and the teacher.

    Args:
        found: All questions.
        index: The documents.
        apart: Those that are not.
    """
    out = {query.id for query in apart.queries}
    learned = [query for query in found.queries if query.id not in out]
    examples = from_judgements(learned, found.own, index.documents, found.candidates, unjudged=True)
    return replace(examples, teacher=found.teacher)


def settings_of(family: str, teacher: Ranker, options: AdaptOptions) -> Settings:
    """Return the settings: the family's own, the recipe, what differs.

    Args:
        family: The pupil's.
        teacher: Pairs are crossed only where it has vectors of both sides.
        options: With what differs.
    """
    recipe = RECIPES.get(family, MARGINS)
    if family in DESIGNS:
        recipe = recipe | (LISTS if needs_texts(teacher) else CROSSED)
    changes = recipe | {"seed": options.seed, "overlap": "allow"} | dict(options.settings)
    return defaults(family).but(**changes)


def seconds_a_step(model: Model[Any], examples: Examples, settings: Settings) -> float:
    """Measure a step, the first ones left out; the model's weights are put back.

    Args:
        model: The pupil.
        examples: What it learns from.
        settings: How.
    """
    network = cast(nn.Module, model)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    stepper = Stepper(model, settings)
    batches = batches_for(examples, shape_of(model.objective, settings), settings)
    times = []
    for number, tasks in enumerate(islice(batches.plan(0), _TIMED)):
        started = time.perf_counter()
        stepper.step(stepper.encode(tasks), Moment(number, 10 * _TIMED, 0))
        times.append(time.perf_counter() - started)
    network.load_state_dict(before)
    network.zero_grad(set_to_none=True)
    timed = times[len(times) // 3 :]
    return sum(timed) / max(1, len(timed))


def teach(
    model: Model[Any],
    examples: Examples,
    settings: Settings,
    folder: Path,
    apart: tuple[HeldOut, Index],
    show: Show,
) -> Outcome:
    """Teach the pupil; a killed training goes on.

    Args:
        model: The pupil.
        examples: What it learns from.
        settings: How.
        folder: The training's folder.
        apart: Questions to validate on, and the documents.
        show: Shows how far the work is.
    """
    questions, index = apart
    plan = Plan(depth=min(50, max(len(ranking.doc_ids) for ranking in questions.first.values())))
    validation = Validation(questions.first, questions.queries, questions.taught, index.documents, plan)
    settings = settings.but(epochs=settings.steps)  # each has a step or more
    with warnings.catch_warnings():
        # Remarks compare with the first stage as if the pupil were used alone; they stand in outcome.json.
        warnings.simplefilter("ignore", RankhouseWarning)
        return fit(model, examples, settings, folder, validation, progress=show("teaching"))
