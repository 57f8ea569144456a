"""The query's side of a sparse encoder that has a table for it, at work without the model and without torch.

Paper: Geng et al., "Towards Competitive Search Relevance For Inference-Free Learned Sparse Retrievers", 2024.
The weights are those of :meth:`SparseRanker.query_weights`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec
import numpy as np
import scipy.sparse
from tokenizers import Tokenizer

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import FloatArray
from rankhouse.models.text_ids import TextIds

_TOKENIZER: Final = "tokenizer.json"
_TABLE: Final = "table.bin"
_POLICY: Final = "policy.json"


class QueryPolicy(msgspec.Struct, frozen=True):
    """How a query is read: what is put before it, and most tokens of it."""

    prompt: str
    max_length: int


def query_files(tokenizer: bytes, table: FloatArray, policy: QueryPolicy) -> dict[str, bytes]:
    """Return the files that :meth:`QueryTable.of` reads, by name."""
    weights = np.ascontiguousarray(table, "<f4").tobytes()
    return {_TOKENIZER: tokenizer, _TABLE: weights, _POLICY: msgspec.json.encode(policy)}


class QueryTable:
    """Gives each word of the vocabulary that a query holds its weight in a table, once."""

    def __init__(
        self, tokenizer: Tokenizer, table: FloatArray, policy: QueryPolicy, fingerprint: str
    ) -> None:
        self._tokenizer, self._table, self._policy = tokenizer, table, policy
        self._texts = TextIds(tokenizer, policy.max_length)
        self.fingerprint = fingerprint

    @classmethod
    def of(cls, files: Mapping[str, bytes], fingerprint: str) -> Self:
        """Read the files that :func:`query_files` made; BadModel if they cannot be read."""
        try:
            tokenizer = Tokenizer.from_str(files[_TOKENIZER].decode())
            table = np.frombuffer(files[_TABLE], "<f4")
            policy = msgspec.json.decode(files[_POLICY], type=QueryPolicy)
        except Exception as error:  # tokenizers raises a bare Exception
            raise BadModel(f"the files that weigh queries cannot be read ({error}); encode again") from error
        return cls(tokenizer, table, policy, fingerprint)

    @property
    def vocabulary(self) -> int:
        """How many words there are, v."""
        return len(self._table)

    def word(self, number: int) -> str:
        """Return a word of the vocabulary as it is written there."""
        return self._tokenizer.id_to_token(number) or f"[{number}]"

    def query_weights(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """Weigh the vocabulary for n queries: (n, v) float32."""
        read = self._texts(self._policy.prompt + text for text in texts)
        words = [np.unique(ids.kept) for ids in read]
        ends = np.cumsum([0, *map(len, words)])
        numbers = np.concatenate([np.empty(0, np.int32), *words])
        weights = scipy.sparse.csr_array((self._table[numbers], numbers, ends), (len(texts), self.vocabulary))
        weights.eliminate_zeros()
        return weights
