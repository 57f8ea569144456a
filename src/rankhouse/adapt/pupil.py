"""Second stage of adapting: a pupil is begun, and taught on the questions' candidates."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import torch

from rankhouse.adapt.options import CROSSED, DESIGNS, LISTS, MARGINS, RECIPES, AdaptOptions, Show
from rankhouse.adapt.questions import Questions
from rankhouse.adapt.teacher import needs_texts, write_word_vectors
from rankhouse.core.errors import RankhouseWarning
from rankhouse.core.nouns import Encoder, Pair, Passage, Query, Ranker, TextEncoder
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.io.trec import read_qrels, write_qrels
from rankhouse.labels.soft_scores import members_of
from rankhouse.models.contract import Model
from rankhouse.models.tk import TK
from rankhouse.nn.compute import choose
from rankhouse.ranking.rerank_plan import Plan
from rankhouse.text.vocabulary import Vocabulary
from rankhouse.text.words import splitter
from rankhouse.training.examples import Examples, from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.settings import Settings, defaults
from rankhouse.training.state import Outcome
from rankhouse.training.teaching import begin
from rankhouse.training.validation import Validation

WORDS: Final = "words.txt"
_BEST = 3
"""Documents that the teacher puts first count as relevant to a held-out question."""
_SHARE, _FEWEST = 0.1, 10
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

    def few(self, most: int) -> HeldOut:
        """Return at most so many of the questions."""
        queries = self.queries[:most]
        ids = [query.id for query in queries]
        own, taught = ({query_id: qrels[query_id] for query_id in ids} for qrels in (self.own, self.taught))
        return HeldOut(queries, self.first.restrict(ids), own, taught)

    def validation(self, index: Index) -> Validation:
        """Return what a pupil is validated on: the teacher's order of what the first stage finds."""
        plan = Plan(depth=min(50, max(len(ranking.doc_ids) for ranking in self.first.values())))
        return Validation(self.first, self.queries, self.taught, index.documents, plan)


def held_out(found: Questions, index: Index, path: Path, minutes: float, show: Show) -> HeldOut:
    """Let the teacher read what the first stage finds for the questions that are held out.

    Args:
        minutes: What the whole work may take: a tenth for this reading, or ten questions; 0: no limit.
    """
    drawn, first = [query for query in found.queries if query.id in found.first], found.first
    if not path.exists():
        began, progress = time.monotonic(), show("reading what is held out")
        taught: dict[str, dict[str, int]] = {}
        for done, query in enumerate(drawn):
            progress(done, len(drawn))
            if minutes and done >= _FEWEST and time.monotonic() - began > 60 * _SHARE * minutes:
                break
            taught[query.id] = _best(query, first[query.id].doc_ids, found.teacher, index)
        write_qrels(taught, path)
    best = read_qrels(path)
    drawn = [query for query in drawn if query.id in best]
    own = {query.id: found.own[query.id] for query in drawn}
    return HeldOut(drawn, first.restrict([query.id for query in drawn]), own, best)


def _best(query: Query, doc_ids: Sequence[str], teacher: Ranker, index: Index) -> dict[str, int]:
    """Return the documents that a teacher puts first, with grades."""
    pairs = [Pair(query, Passage(d, 0, index.documents[d].full_text)) for d in doc_ids]
    best = sorted(zip(-teacher.score(pairs), doc_ids, strict=True))[:_BEST]
    return {doc_id: _BEST - place for place, (_, doc_id) in enumerate(best)}


def begin_pupil(index: Index, teacher: Ranker, folder: Path, options: AdaptOptions) -> Model[Any]:
    """Return the pupil before the first lesson; one that knows words by number starts from the teacher's.

    Args:
        teacher: Encodes words, where it encodes texts; the first that does, of several.
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


def examples_of(found: Questions, index: Index) -> Examples:
    """Lay out the questions that are learned, with their candidates and the teacher.

    Args:
        found: All questions; those with a first stage are held out.
    """
    out = set(found.first)
    learned = [query for query in found.queries if query.id not in out]
    examples = from_judgements(learned, found.own, index.documents, found.candidates, unjudged=True)
    return replace(examples, teacher=found.teacher)


def settings_of(family: str, teacher: Ranker, options: AdaptOptions) -> Settings:
    """Return the settings: the family's own, the recipe, what differs."""
    recipe = RECIPES.get(family, MARGINS)
    if family in DESIGNS:
        recipe = recipe | (LISTS if needs_texts(teacher) else CROSSED)
    changes = (
        recipe
        | {"seed": options.seed, "overlap": "allow", "validate_every": "steps"}
        | dict(options.settings)
    )
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
    show: Show,
) -> Outcome:
    """Teach the pupil; a killed training goes on."""
    settings = settings.but(epochs=settings.steps)  # each has a step or more
    with warnings.catch_warnings():
        # Remarks compare with the first stage as if the pupil were used alone; they stand in outcome.json.
        warnings.simplefilter("ignore", RankhouseWarning)
        return fit(model, examples, settings, folder, validation, progress=show("teaching"))
