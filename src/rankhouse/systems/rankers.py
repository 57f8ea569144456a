"""Rankers for the commands: opened from their notation, vectors found beside their index."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from rankhouse.core import notation
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Encoder, Query, Ranker, TextEncoder
from rankhouse.core.options import Option
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.index.dense.exact import Searcher, search
from rankhouse.index.dense.faiss import searcher_of
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.parts.parted_index import AnyIndex, PartedIndex
from rankhouse.index.parts.vectors import PartedSearcher, open_vectors
from rankhouse.systems.checkpoints import DEFAULT, default_ranker

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

_NAMED = re.compile(r",\s*(?=(?:name|vectors)\s*=)")
_DENSE = re.compile(r"\s*dense\s*(?:\((?P<inside>.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class ComputeOptions:
    """How to compute."""

    precision: Annotated[str, Option("auto, fp32, bf16 or int8.")] = "auto"
    device: Annotated[str, Option("auto, cpu or cuda.")] = "auto"
    threads: Annotated[int, Option("Processor threads; 0 for all.", least=0)] = 0


def open_ranker(spec: str, compute: ComputeOptions) -> NeuralRanker:
    """Open a bundle folder, or a checkpoint by its family: ``crossencoder("DIR")``.

    Args:
        spec: A folder, a notation, or "default": see :func:`~rankhouse.systems.checkpoints.default_ranker`.

    Raises:
        MissingExtra: torch or transformers is not installed.
        BadModel: The folder holds no ranker.
        WrongUse: An unknown family.
    """
    try:
        from rankhouse.models import loading
        from rankhouse.nn.compute import choose
    except ImportError as error:
        raise MissingExtra(f"the ranker {spec}", "neural") from error
    if spec == DEFAULT and not Path(spec).exists():
        spec = default_ranker()
    trained = Path(spec) / "ranker"  # the folder of a training holds its best model there
    if (trained / "manifest.json").exists():
        spec = str(trained)
    return loading.open_ranker(spec, choose(compute.precision, compute.device, compute.threads or None))


def use_of(spec: str) -> Mapping[str, str]:
    """Return how a bundle says documents are meant to be passed to it; nothing for a checkpoint."""
    from rankhouse.models import bundle

    for folder in (Path(spec) / "ranker", Path(spec)):
        if (folder / bundle.MANIFEST).is_file():
            return bundle.read_manifest(folder).use
    return {}


def as_encoder(ranker: Ranker | TextEncoder, name: object) -> Encoder:
    """Return a ranker as an encoder of texts.

    Raises:
        WrongUse: It encodes no texts.
    """
    if not isinstance(ranker, TextEncoder):
        raise WrongUse(f"{name}: is no encoder of texts; dense search needs a bi-encoder")
    return cast(Encoder, ranker)


def is_dense(model: str) -> bool:
    """Return whether a model's notation asks for vectors: ``dense(RANKER)``."""
    return _DENSE.fullmatch(model) is not None


@dataclass(frozen=True)
class DenseModel:
    """What ``dense(RANKER, name=..., vectors=...)`` says.

    Attributes:
        ranker: The encoder: a folder, or ``biencoder("DIR")``.
        name: Under which name its vectors were encoded.
        vectors: "exact", or a FAISS structure that was built: ``flat``, ``sq8``, ``hnsw`` ...
    """

    ranker: str
    name: str = "default"
    vectors: str = "exact"

    @classmethod
    def parse(cls, text: str) -> DenseModel:
        """Read the notation; the ranker may stand without quotes: ``dense(biencoder("DIR"), name="x")``."""
        match = _DENSE.fullmatch(text)
        if match is None or not (inside := (match["inside"] or "").strip()):
            raise WrongUse(f'"{text}": write  dense(RANKER), the ranker being a folder or  biencoder("DIR")')
        try:
            spec = notation.parse(text)
        except WrongUse:
            ranker, *rest = _NAMED.split(inside, maxsplit=1)
            spec = notation.parse(f"dense({', '.join([repr(ranker.strip()), *rest])})")
        return notation.make(spec, {"dense": cls}, "model")


def dense_searcher(index: AnyIndex, model: DenseModel) -> Searcher:
    """Open the vectors of an index, exact or by a structure.

    Raises:
        MissingInput: Nothing was encoded under this name.
        BadIndex: The vectors do not cover the index as it is now.
    """
    if isinstance(index, PartedIndex):
        return PartedSearcher(index, open_vectors(index, model.name), model.vectors)
    vectors = Vectors.open(vectors_folder(index.path, model.name))
    vectors.require(documents=len(index), collection=index.fingerprint)
    return searcher_of(vectors, model.vectors)


def dense_run(
    index: AnyIndex,
    model: DenseModel,
    queries: Iterable[Query],
    k: int,
    compute: ComputeOptions,
    progress: Progress | None = None,
) -> Run:
    """Rank an index's documents by their vectors."""
    searcher = dense_searcher(index, model)
    encoder = as_encoder(open_ranker(model.ranker, compute), model.ranker)
    return search(searcher, encoder, queries, k, progress)
