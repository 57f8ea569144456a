"""From what a person names, models, a ranker, a fusion, runs, to the system that is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Encoder, Ranker
from rankhouse.explanation.methods import ExplainOptions, family_of
from rankhouse.index.parts.parted_index import AnyIndex
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank_plan import Plan
from rankhouse.systems.explaining.reranker import RerankSystem
from rankhouse.systems.explaining.systems import (
    FusedSystem,
    LexicalSystem,
    RecordedSystem,
    RunOnRecord,
    RunSystem,
    System,
)
from rankhouse.systems.rankers import ComputeOptions, as_encoder, open_ranker
from rankhouse.systems.reranking import RerankOptions, reading_plan
from rankhouse.systems.short_forms import dense_ranker, is_dense
from rankhouse.text.split import SPLITTERS


@dataclass(frozen=True)
class SystemOptions:
    """What ranks.

    Attributes:
        models: First stages, in notation; several are fused.
        feedback: Of the lexical ones; "" for none.
        fusion: How several models, and the ranker with them, are joined; "" for rrf, and for a ranker alone.
        weights: One a model, the ranker's last; None for equal ones.
        ranker: What reads what the first stage finds; None for none.
        ranker_name: What people call it; "" for its family.
        first_stage: A run in place of the models.
        k: Documents a query of each model.
        rerank: Split, pool and depth.
        explain: How the ranker's scores are explained.
        compute: How dense models compute.
        encoders: Those of dense models that are open already, by what the models call them.
    """

    models: tuple[str, ...] = ()
    feedback: str = ""
    fusion: str = ""
    weights: tuple[float, ...] | None = None
    ranker: Ranker | None = None
    ranker_name: str = ""
    first_stage: RunOnRecord | None = None
    k: int = 1000
    rerank: RerankOptions = field(default_factory=RerankOptions)
    explain: ExplainOptions = field(default_factory=ExplainOptions)
    compute: ComputeOptions = field(default_factory=ComputeOptions)
    encoders: Mapping[str, Encoder] = field(default_factory=dict)


def build_system(index: AnyIndex, options: SystemOptions) -> System:
    """Put together what ranks.

    Raises:
        WrongUse: An unknown model, fusion, splitter or pool, or weights that do not fit.
    """
    first = first_stage_of(index, options)
    if options.ranker is None:
        return first
    plan = reading_plan(options.ranker, index, options.rerank)[0]
    ranks = _reranker(options, index.documents, plan, first)
    if not options.fusion:
        return ranks
    before = [first] if options.first_stage else [_model(index, model, options) for model in _models(options)]
    return _fused([*before, ranks], options)


def first_stage_of(index: AnyIndex, options: SystemOptions) -> System:
    """Put together what finds the documents."""
    given = options.first_stage
    if given is not None:
        return RecordedSystem(given, _joined(index, options)) if options.models else RunSystem(given)
    return _joined(index, options)


def _joined(index: AnyIndex, options: SystemOptions) -> System:
    systems = [_model(index, model, options) for model in _models(options)]
    if len(systems) == 1:
        return systems[0]
    return _fused(systems, replace(options, fusion="", weights=None) if options.ranker else options)


def _models(options: SystemOptions) -> tuple[str, ...]:
    return options.models or ("bm25",)


def _model(index: AnyIndex, model: str, options: SystemOptions) -> System:
    if is_dense(model):
        from rankhouse.systems.explaining.dense import DenseSystem

        name = dense_ranker(model)
        encoder = options.encoders.get(name) or as_encoder(open_ranker(name, options.compute), name)
        return DenseSystem(index, model, encoder, options.k)
    return LexicalSystem(index, model, options.feedback, options.k)


def _fused(systems: list[System], options: SystemOptions) -> FusedSystem:
    method = options.fusion or "rrf"
    fusion = notation.make(method, FUSIONS, "method of fusion")
    if options.weights is not None and len(options.weights) != len(systems):
        names = ", ".join(system.name for system in systems)
        raise WrongUse(f"{len(options.weights)} weights for {len(systems)} systems ({names}); give one each")
    return FusedSystem(systems, method, fusion, options.weights)


def system_of_texts(documents: Sequence[Document], options: SystemOptions) -> System:
    """Put together a ranker that reads documents which are in no index.

    Raises:
        WrongUse: No ranker, or an unknown splitter or pool.
    """
    if options.ranker is None or options.models or options.first_stage:
        raise WrongUse("a first stage needs an index: only there are its words counted; give index=")
    wanted = options.rerank
    plan = Plan(
        split=notation.make(wanted.split or "whole", SPLITTERS, "splitter"),
        pool=notation.make(wanted.pool or "max", POOLS, "pool"),
    )
    by_id = {document.id: document for document in documents}
    return _reranker(options, by_id, plan, None)


def _reranker(
    options: SystemOptions, documents: Mapping[str, Document], plan: Plan, first: System | None
) -> System:
    if options.ranker is None:
        raise WrongUse("no ranker is named")
    name = options.ranker_name or family_of(options.ranker) or type(options.ranker).__name__
    return RerankSystem(options.ranker, name, documents, plan, options.explain, first)
