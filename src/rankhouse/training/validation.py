"""Validation is what the ranker will be used for: re-rank a run and measure it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from statistics import fmean

import msgspec

from rankhouse.core.errors import BadData, RankhouseWarning, WrongUse, name_few
from rankhouse.core.notation import name_of
from rankhouse.core.nouns import Documents, Query, Ranker, Ranking
from rankhouse.core.qrels import Qrels, restrict
from rankhouse.core.run import Run
from rankhouse.core.sameness import NOTHING, mismatch
from rankhouse.evaluation.measures import scorer
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.index.sharded.sharded_index import ShardedIndex
from rankhouse.io.corpora import named_sources, read_queries, read_sources
from rankhouse.io.files import Skips
from rankhouse.io.trec import read_qrels
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.training.settings import Settings


@dataclass(frozen=True)
class Validation:
    """Data of a validation.

    Attributes:
        run: The first stage.
        sets: Collections whose mean is the value; ids begin with a name and a colon. Or none.
    """

    run: Run
    queries: Sequence[Query]
    qrels: Qrels
    documents: Documents
    plan: Plan = field(default_factory=lambda: Plan(depth=100))
    sets: Sequence[str] = ()

    @property
    def rows(self) -> int:
        """Documents that one validation reads."""
        depth = self.plan.depth
        return sum(min(depth, len(self.run[q.id].doc_ids)) for q in self.queries if q.id in self.run)

    @cached_property
    def fingerprint(self) -> str:
        """Name of run, queries, judgements and plan, 16 hexadecimal digits: the choice depends on them."""
        plan = [name_of(self.plan.split), name_of(self.plan.pool), str(self.plan.depth), *self.sets]
        digest = sha256(msgspec.json.encode([plan, self.queries, self.qrels], order="deterministic"))
        for query_id in self.run:
            ranking = self.run[query_id]
            digest.update(msgspec.json.encode([query_id, ranking.doc_ids]) + ranking.scores.tobytes())
        return digest.hexdigest()[:16]


def validation_sets(collections: Sequence[str], folder: Path, depth: int) -> Validation:
    """Join collections with documents, queries and judgements of their own, BM25's first ``depth`` of each.

    Args:
        collections: Folders in BEIR's layout and ``ir_datasets:NAME``, or NAME=PATH.
        folder: Folder of their indexes; it has to outlast the validation.

    Raises:
        WrongUse: Two have one name, or one has a colon in it.
    """
    queries, qrels = list[Query](), dict[str, Mapping[str, int]]()
    rankings, folders, names = dict[str, Ranking](), list[Path](), list[str]()
    for source in named_sources(collections):
        if ":" in source.prefix:
            raise WrongUse(
                f'"{source.prefix}": the name of a set has no colon; name it, like  one={source.path}'
            )
        path, name = source.path, f"{source.prefix}:"
        folders.append(folder / str(len(folders)))
        build(read_sources([source], Skips()), folders[-1], BuildOptions(workers=1))
        judged = {
            name + query_id: {name + doc_id: grade for doc_id, grade in grades.items()}
            for query_id, grades in read_qrels(path).items()
        }
        asked = [Query(name + query.id, query.text) for query in read_queries(path)]
        asked = [query for query in asked if query.id in judged]
        if not asked:
            others = name_few(sorted(judged), 3, quoted=True) if judged else "none"
            raise BadData(f"none of the set's queries is judged; its judgements are of: {others}", path)
        run = retrieve(Index.open(folders[-1]), asked, LexicalOptions(k=depth))
        rankings |= {query_id: run[query_id] for query_id in run}
        queries += asked
        qrels |= judged
        names.append(source.prefix)
    documents = ShardedIndex.open(folders).documents
    return Validation(Run.from_rankings(rankings), queries, qrels, documents, sets=names)


def interval(settings: Settings, steps: int, validation: Validation) -> int:
    """Return how many steps there are between validations, besides those after epochs; 0 for none.

    What "auto" means depends on counts, never on the clock: the same training has the same validations.
    """
    if isinstance(settings.validate_every, int):
        return settings.validate_every
    read = settings.by_query or settings.batch * (1 + settings.count)
    # They may take three times the time of learning, in which three times as many pairs are scored.
    affordable = 3 * 3 * read * steps // max(1, validation.rows)
    every = max(1, steps // min(10, max(4, affordable)))
    return min(every, 2000) if settings.patience else every  # TK's published configuration has 2000


def early(every: int) -> frozenset[int]:
    """Return steps before the first of every so many: an eighth, a quarter and a half of it.

    A model that ranks well before it is taught may lose that within a few steps.
    """
    return frozenset(every // part for part in (8, 4, 2) if every >= part)


def _remark(validation: Validation, asked: Qrels) -> str:
    others = [query_id for query_id in validation.qrels if query_id not in asked]
    absent = [query_id for query_id in asked if query_id not in validation.run]
    left_out = (
        f"{len(others):,} of {len(validation.qrels):,} judged queries are not among the "
        f"{len(validation.queries):,} of validation and are left out: {name_few(others, quoted=True)}"
    )
    without = (
        f"{len(absent):,} of {len(asked):,} judged validation queries are not in the run and count as 0: "
        f"{name_few(absent, quoted=True)}"
    )
    return "; ".join(text for text, ids in ((left_out, others), (without, absent)) if ids)


class Validator:
    """Validates again and again with judgements made ready once.

    The mean is over the judged queries that are asked, as of ``evaluate`` with their judgements; those that
    the run lacks count as 0. Of several sets it is the mean of each set's.

    Attributes:
        first_stage: Value of the run as it is.
        remark: Which judged queries are left out or count as 0, or that ids do not match; "" for nothing.

    Raises:
        BadData: No query of the run is judged.
        WrongUse: The measure cannot be computed.
    """

    def __init__(self, validation: Validation, measure: str) -> None:
        self.validation = validation
        asked = restrict(validation.qrels, [query.id for query in validation.queries])
        parts: dict[str, Qrels] = {
            name: {q: asked[q] for q in asked if q.startswith(f"{name}:")} for name in validation.sets
        }
        parts = parts or {"": asked or validation.qrels}
        ranked = {query_id: validation.run[query_id].doc_ids for query_id in validation.run}
        other = [
            mismatch(ranked, "the run", part, "the judgements", documents=NOTHING) for part in parts.values()
        ]
        self.remark = "; ".join(filter(None, (_remark(validation, asked) if asked else "", *other)))
        self._scorers = {name: scorer(qrels, measure) for name, qrels in parts.items()}
        self.first_stage = self._value_of(validation.run)
        self._again = False

    def __call__(self, ranker: Ranker) -> tuple[float, Run]:
        """Re-rank and measure; what re-ranking warns of is said the first time only."""
        given = self.validation
        queries = [query for query in given.queries if query.id in given.run]
        with warnings.catch_warnings():
            if self._again:
                warnings.simplefilter("ignore", RankhouseWarning)
            run = rerank(ranker, given.run, queries, given.documents, plan=given.plan)
        self._again = True
        return self._value_of(run), run

    def by_set(self, run: Run) -> dict[str, float]:
        """Measure a run on each set; "" is the name of one without."""
        return {name: value_of(run) for name, value_of in self._scorers.items()}

    def _value_of(self, run: Run) -> float:
        return fmean(self.by_set(run).values())
