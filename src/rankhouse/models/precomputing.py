"""Stored representations of passages, and scoring by them: vectors of words or tokens, or token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Passage, PassageRows, Query, Storage, StoredPair
from rankhouse.models.contract import PrecomputingModel, TokenModel
from rankhouse.models.pair_encoding import PairReader
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.text_ids import Ids
from rankhouse.models.word_models import WordModel, array
from rankhouse.nn.layers.kernel_pooling import Kernels, ragged_counts, weighed
from rankhouse.nn.layers.ragged import Packed, Ragged, within_budget

Numbers = NDArray[np.int64]

_BLOCK_ROWS: Final = 32_768  # rows gathered at once: some 20 MB of float16 vectors


class PassageStore(Protocol):
    """Passages of an index, of which rows are stored."""

    def lengths(self, passages: Numbers) -> Numbers:
        """Return how many rows passages have, (n,)."""
        ...

    def gather(self, at: Numbers, most: int = 0) -> PassageRows:
        """Read the rows of n passages by their numbers; of each the first ``most``, or all."""
        ...


class VectorPrecomputer:
    """Puts passages into context, word by word (TK, late interaction), and scores by the vectors.

    Raises WrongUse: the ranker has no vectors to store.
    """

    chunk = 256

    def __init__(self, ranker: NeuralRanker, dtype: Storage = "float16") -> None:
        self._ranker, self._storage = ranker, dtype
        self._model = _word_matcher(ranker)
        self.kind: Literal["vectors", "tokens"] = "tokens" if self._model.id_format else "vectors"
        self.dtype = self._model.id_format or dtype

    @property
    def fingerprint(self) -> str:
        """The ranker's without its precision: word vectors are always computed in fp32."""
        return self._ranker.fingerprint.removesuffix(f"-{self._ranker.compute.precision}")

    def precompute(self, texts: Sequence[str]) -> PassageRows:
        """Return the vectors of n passages."""
        with self._ranker.compute.active():
            return self._model.store_passages(texts, self._storage)

    def score(self, store: PassageStore, pairs: Sequence[StoredPair]) -> FloatArray:
        """Score n pairs: (n,)."""
        scores = np.empty(len(pairs), np.float32)
        rows = np.array([pair.passage.row for pair in pairs], np.int64)
        for text, places in groupby(range(len(pairs)), lambda i: pairs[i].query.text):
            for block in _blocks(store, np.fromiter(places, np.int64), rows):
                stored = store.gather(rows[block])
                with self._ranker.compute.active():
                    scores[block] = self._model.score_stored(text, stored)
                report = self._ranker.report
                report.seen += len(block)
                report.truncated += int((stored.lost > 0).sum())
                report.tokens_lost += int(stored.lost.sum())
        return scores


def _blocks(store: PassageStore, places: Numbers, rows: Numbers) -> Iterator[Numbers]:
    """Cut passages of one query so that their vectors fit into little memory."""
    lengths = store.lengths(rows[places])
    cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // _BLOCK_ROWS)) + 1
    yield from np.split(places, cuts)


STORED_BUDGET: Final = 16_384
"""Words whose vectors are made, or looked up, at once."""


class KernelModel(WordModel):
    """A word-level family that sums kernels over whole passages, which can be made before any query.

    A family says ``stored_shape``, ``stored_vectors`` and ``count_weights``; or gives words' numbers, and
    scores by them.
    """

    kernels: Kernels

    @property
    def id_format(self) -> str:
        """Number format of words' numbers, where these are stored."""
        return ""

    @property
    def stored_shape(self) -> tuple[int, int]:
        """Number of vectors of a word, m, and their width, d."""
        raise NotImplementedError

    def stored_vectors(self, rows: Ragged) -> Tensor:
        """Make n texts' vectors, of length 1: (n, m, t, d)."""
        raise NotImplementedError

    def query_vectors(self, row: Ragged) -> Tensor:
        """Make the vectors of one query, as those that are stored, up to rounding: (m, q, d)."""
        return self.stored_vectors(row)[0, :, : int(row.lengths[0])]

    def count_weights(self) -> tuple[Tensor, Tensor]:
        """Return the weights of sums over a query's words, (m, m, k) each, the passage's vectors first.

        Of the logarithms (base 2) of soft counts, and of soft counts divided by the passage's length + 1.
        """
        raise NotImplementedError

    @torch.inference_mode()
    def store_passages(self, texts: Sequence[str], storage: Storage = "float16") -> PassageRows:
        """Make passages' vectors once, to be matched with any query later: those of each kind in turn.

        Raises WrongUse: an unknown storage.
        """
        check_storage(storage)
        read = self.encode([Pair(Query("", ""), Passage("", 0, text)) for text in texts])
        rows, starts, lost = read.passage, read.passage.offsets.numpy(), read.lost.numpy()
        if self.id_format:
            ids = rows.values.numpy().astype(self.id_format)
            return PassageRows(ids[:, None], np.empty(0, np.float32), starts, lost)
        m, d = self.stored_shape
        vectors = torch.empty(m * int(starts[-1]), d)
        whole = Ragged(torch.arange(len(vectors)), m * rows.lengths)
        for chosen in within_budget(rows.lengths, STORED_BUDGET):
            part = rows.take(chosen).to(_device(self))
            mask = part.mask(at_least=1).unsqueeze(1).expand(-1, m, -1)
            vectors[whole.take(chosen).values] = self.stored_vectors(part)[mask].cpu()
        return PassageRows(*stored(vectors, storage), m * starts, lost)

    def asked_vectors(self, query: str) -> Tensor:
        """Make the vectors of a query's text: (m, q, d)."""
        return self.query_vectors(self.reader.rows([query], self.design.query_length).to(_device(self)))

    @torch.inference_mode()
    def score_stored(self, query: str, rows: PassageRows) -> FloatArray:
        """Score stored passages for a query: (n,) float32; only the query's vectors are made."""
        asked = self.asked_vectors(query).cpu()
        (m, q, _), k = asked.shape, len(self.kernels)
        lengths, offsets = rows.lengths, rows.offsets
        if m > 1:
            lengths = lengths // m
            offsets = np.concatenate([[0], np.repeat(lengths, m).cumsum()])
        counts = ragged_counts(asked.flatten(0, 1), rows.values, rows.scales, offsets, kernels=self.kernels)
        log_weights, weights = (each.flatten(0, 1).cpu().contiguous() for each in self.count_weights())
        scores = weighed(
            counts.view(len(lengths), m * m, q, k), log_weights, weights, torch.from_numpy(lengths)
        )
        return array(scores)


def _device(model: KernelModel) -> torch.device:
    return next(model.parameters()).device


class TokenPrecomputer:
    """Cuts passages into the token ids that a cross-encoder or monoT5 reads; none is left out.

    Raises WrongUse: it reads no tokens that could be stored.
    """

    kind: Literal["tokens"] = "tokens"
    chunk = 1_024

    def __init__(self, ranker: NeuralRanker) -> None:
        self._ranker, self._reader = ranker, _pair_reader(ranker)
        self.fingerprint = self._reader.texts.fingerprint
        self.dtype = "uint16" if self._reader.texts.largest < 2**16 else "uint32"

    def precompute(self, texts: Sequence[str]) -> PassageRows:
        """Return the ids of n passages, one a row."""
        ids = self._reader.texts.whole(texts)
        offsets = np.cumsum([0, *(len(own) for own in ids)], dtype=np.int64)
        flat: NDArray[Any] = np.fromiter(chain.from_iterable(ids), self.dtype, int(offsets[-1]))
        return PassageRows(flat[:, None], np.empty(0, np.float32), offsets, np.zeros(len(ids), np.int64))

    def score(self, store: PassageStore, pairs: Sequence[StoredPair]) -> FloatArray:
        """Score n pairs: (n,)."""

        def encode(some: Sequence[StoredPair]) -> Packed:  # safe in a thread
            rows = np.array([pair.passage.row for pair in some], np.int64)
            totals = store.lengths(rows).tolist()
            stored = store.gather(rows, self._reader.max_length)
            ids = np.split(stored.values.reshape(-1).astype(np.int32), stored.offsets[1:-1])
            passages = [Ids(own, total) for own, total in zip(ids, totals, strict=True)]
            return self._reader.join([pair.query.text for pair in some], passages)

        return self._ranker.score_with(pairs, encode)


def precomputer_of(ranker: NeuralRanker) -> VectorPrecomputer | TokenPrecomputer:
    """Return what a ranker can score by; WrongUse where it can store nothing."""
    is_reader = isinstance(ranker.model, TokenModel)
    return TokenPrecomputer(ranker) if is_reader else VectorPrecomputer(ranker)


def _pair_reader(ranker: NeuralRanker) -> PairReader:
    """Return what turns a ranker's pairs into ids."""
    model = ranker.model
    if not isinstance(model, TokenModel):
        raise WrongUse(f"{model.family}: reads no kept token ids; crossencoder and monot5 do")
    if not model.pair_reader.joins:
        raise WrongUse(
            f"{model.family}: this tokenizer cuts a passage otherwise next to a query than alone, so its "
            "token ids cannot be kept"
        )
    return model.pair_reader


def _word_matcher(ranker: NeuralRanker) -> PrecomputingModel:
    """Return the model of a ranker that encodes the words of passages apart from any query."""
    model = ranker.model
    if not isinstance(model, PrecomputingModel):
        raise WrongUse(f"{model.family}: keeps no vectors of words; TK, KNRM, Conv-KNRM and colbert do")
    return model


def check_storage(storage: str) -> None:
    """Refuse (WrongUse) a number format that vectors are not stored in."""
    if storage not in get_args(Storage):
        raise WrongUse(f'storage="{storage}" is not known; choose from: float16, float32, int8')


def stored(vectors: Tensor, storage: Storage) -> tuple[NDArray[Any], FloatArray]:
    """Round vectors (t, d) for the store; with int8, each has a scale of its own, (t,)."""
    if storage != "int8":
        return vectors.numpy().astype(storage), np.empty(0, np.float32)
    scales = vectors.abs().amax(1).clamp_min(1e-30) / 127
    return (vectors / scales[:, None]).round().numpy().astype(np.int8), scales.numpy()
