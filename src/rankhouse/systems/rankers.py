"""Rankers for the commands: opened from their notation, vectors found beside their index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import Encoder, Ranker, TextEncoder
from rankhouse.index.dense.exact import Searcher
from rankhouse.index.dense.faiss import searcher_of
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.impacts.impacts import Impacts, QueryWeigher, Weigher, impacts_folder
from rankhouse.index.impacts.lists import PackedImpacts
from rankhouse.index.impacts.search import ImpactSearcher
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex
from rankhouse.index.sharded.vectors import (
    AnyImpacts,
    AnyImpactSearcher,
    ShardedImpactSearcher,
    ShardedSearcher,
    open_impacts,
    open_vectors,
)
from rankhouse.io.content_hash import described
from rankhouse.io.files import PathLike, as_path, wrong_kind
from rankhouse.systems.checkpoints import with_default
from rankhouse.systems.stage import without_family

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.systems.first_stages import Dense, Sparse


@dataclass(frozen=True)
class ComputeOptions:
    """How to compute."""

    precision: Annotated[str, Option("auto, fp32, bf16 or int8.")] = "auto"
    device: Annotated[str, Option("auto, cpu or cuda.", neutral=True)] = "auto"
    threads: Annotated[int, Option("Processor threads; 0 for all.", least=0, neutral=True)] = 0


def open_ranker(spec: str, compute: ComputeOptions) -> NeuralRanker:
    """Open a bundle folder, or a checkpoint by its family: ``crossencoder("DIR")``; or "default".

    Raises MissingExtra without torch or transformers, BadModel where the folder holds no ranker, WrongUse for
    an unknown family.
    """
    with needs("neural", f"the ranker {spec}"):
        from rankhouse.models import bundle
        from rankhouse.nn.compute import choose
    spec = bundle_folder(with_default(spec))
    return bundle.open_ranker(spec, choose(compute.precision, compute.device, compute.threads or None))


def as_ranker(given: PathLike | Ranker) -> Ranker:
    """Return a ranker: itself, or opened from its notation with everything chosen by default.

    Raises WrongUse where it is neither.
    """
    if isinstance(given, str | os.PathLike):
        return open_ranker(str(as_path(given, "the ranker")), ComputeOptions())
    if isinstance(given, type) or not callable(getattr(given, "score", None)):
        raise wrong_kind("the ranker", given, "an object with score(pairs), a folder, or a notation")
    return given


def is_pairwise(spec: object) -> bool:
    """Return whether this is the notation of a ranker that compares passages two by two."""
    from rankhouse.models.families import PAIRWISE

    return isinstance(spec, str) and spec.partition("(")[0].strip() in PAIRWISE


def use_of(spec: str) -> Mapping[str, str]:
    """Return how a bundle says documents are meant to be passed to it; nothing for a checkpoint."""
    from rankhouse.models import bundle

    folder = Path(bundle_folder(spec))
    return bundle.read_manifest(folder).use if (folder / bundle.MANIFEST).is_file() else {}


def bundle_folder(spec: str) -> str:
    """Return where a ranker's bundle is: the folder of a training holds its best model in one of its own."""
    trained = Path(spec) / "ranker"
    return str(trained) if (trained / "manifest.json").exists() else spec


def as_encoder(ranker: Ranker | TextEncoder, name: object) -> Encoder:
    """Return a ranker as an encoder of texts; WrongUse where it encodes none."""
    if not isinstance(ranker, TextEncoder):
        raise WrongUse(f"{name}: is no encoder of texts; dense search needs a bi-encoder")
    return cast(Encoder, ranker)


def dense_searcher(index: AnyIndex, model: Dense) -> Searcher:
    """Open the vectors of an index, exact or by a structure.

    Raises MissingInput where nothing was encoded under this name, BadIndex where the vectors do not cover the
    index as it is now.
    """
    if isinstance(index, ShardedIndex):
        return ShardedSearcher(index, open_vectors(index, model.name), model.vectors)
    vectors = Vectors.open(vectors_folder(index.path, model.name))
    vectors.require(documents=len(index), collection=index.fingerprint)
    return searcher_of(vectors, model.vectors)


def as_weigher(ranker: object, name: object) -> Weigher:
    """Return a ranker as a sparse encoder; WrongUse where it is none."""
    if not isinstance(ranker, Weigher):
        raise WrongUse(f'{name}: is no sparse encoder, which weighs words; name one like  sparse("DIR")')
    return ranker


def sparse_spec(ranker: str) -> str:
    """Return what opens the encoder of a sparse first stage; a name that is no folder is of the hub."""
    return ranker if ranker.endswith(")") or Path(ranker).exists() else f"sparse({ranker!r})"


def source_of(ranker: str) -> str:
    """Return a name of an encoder that says what is in its folder, not where that is."""
    return described(bundle_folder(without_family(ranker, "sparse")))


def impact_searcher(index: AnyIndex, model: Sparse) -> AnyImpactSearcher:
    """Open the impacts of an index.

    Raises MissingInput where nothing was encoded under this name, BadIndex where the impacts do not cover the
    index as it is now.
    """
    if isinstance(index, ShardedIndex):
        return ShardedImpactSearcher(index, open_impacts(index, model.name))
    impacts = Impacts.open(impacts_folder(index.path, model.name))
    impacts.require(documents=len(index), collection=index.fingerprint)
    return ImpactSearcher(PackedImpacts(impacts))


def query_weigher(impacts: AnyImpacts, model: Sparse) -> QueryWeigher | None:
    """Return the table that came with the impacts, if it is that of the encoder named; else None.

    Raises MissingExtra without the package tokenizers.
    """
    state = impacts.state
    if not state.query or source_of(model.ranker) != state.source:
        return None
    with needs("neural", f"the tokenizer of {model.ranker}"):
        from rankhouse.models.query_table import QueryTable
    return QueryTable.of(impacts.query_files(), state.encoder)
