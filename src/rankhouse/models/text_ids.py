"""Texts -> ids by a tokenizer, each text once, and ids -> weights of a sparse encoder's table; without torch.

The table is the query's side of a sparse encoder, at work without the model. Paper: Geng et al., "Towards
Competitive Search Relevance For Inference-Free Learned Sparse Retrievers", 2024. The weights are those of
:meth:`SparseRanker.query_weights`, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import islice
from threading import Lock
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import FloatArray

IdArray = NDArray[np.int32]

_REMEMBERED = 64 * 2**20  # bytes of texts and ids kept, about 60,000 passages
_UNKNOWN = "<unk>"  # of Unigram vocabularies, which read many a character as it


class Ids(NamedTuple):
    """One text's ids."""

    kept: IdArray  # the first of them, as many as the model could ever read
    total: int  # how many there are


class Token(NamedTuple):
    """A token of a text."""

    id: int  # its number
    text: str  # as the vocabulary writes it
    special: bool  # whether it is one of the model's own
    # (start, end) characters of the text that it spells; None for the model's own
    span: tuple[int, int] | None


class TextIds:
    """Tokenises texts without special tokens and remembers the latest.

    Text that spells a special token ("</s>", "[SEP]") is read as ordinary characters: a passage cannot end
    its own sequence.

    Attributes:
        room: Bytes of texts and ids that are remembered.
    """

    def __init__(self, tokenizer: Tokenizer, keep: int) -> None:
        self._tokenizer, self._keep = plain(tokenizer), keep
        # Other models write unknown words as their unknown token, which no text can spell.
        unknown = getattr(tokenizer.model, "unk_token", None)
        added = tokenizer.get_added_tokens_decoder().items()
        own = {token.content: i for i, token in added if token.special and token.content != unknown}
        self._own_names = frozenset(own)
        self._own_ids, self._unknown = frozenset(own.values()), own.get(_UNKNOWN)
        self.room = _REMEMBERED
        self._known: dict[str, Ids] = {}
        self._bytes = 0
        self._lock = Lock()  # several threads may encode

    @cached_property
    def fingerprint(self) -> str:
        """Name of how texts are cut; what the model puts around them is left out, so that kin share ids."""
        settings = json.loads(self._tokenizer.to_str())
        for name in ("post_processor", "truncation", "padding"):
            settings.pop(name, None)
        return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def largest(self) -> int:
        """The largest id there is."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0)

    def whole(self, texts: Sequence[str]) -> list[list[int]]:
        """Return all ids of texts, to be kept elsewhere; nothing of it is remembered here."""
        return [list(encoding.ids) for encoding in self._encoded(list(texts))]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters of a text that each of its ids spells, as (start, end)."""
        return list(self._reader(text).encode(text, add_special_tokens=False).offsets)

    def tokens(self, text: str, special: bool) -> list[Token]:
        """Return a text's tokens one by one."""
        encoding = self._reader(text).encode(text, add_special_tokens=special)
        rows = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
        return [Token(number, token, bool(own), None if own else span) for number, token, own, span in rows]

    def __call__(self, texts: Iterable[str]) -> list[Ids]:
        """Return the ids of texts, in the order given."""
        texts = list(texts)
        rows = {text: self._known.get(text) for text in texts}
        new = [text for text, ids in rows.items() if ids is None]
        for text, encoding in zip(new, self._encoded(new), strict=True):
            flat = encoding.ids
            rows[text] = Ids(np.array(flat[: self._keep], np.int32), len(flat))
        self._remember({text: rows[text] for text in new})
        return [ids for text in texts if (ids := rows[text]) is not None]

    def _encoded(self, texts: list[str]) -> list[Encoding]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for place, encoding in enumerate(encodings):
            own = self._own_ids.intersection(encoding.ids)
            if own - {self._unknown} or (own and _UNKNOWN in self._normal(texts[place])):
                encodings[place] = self._reader(texts[place]).encode(texts[place], add_special_tokens=False)
        return encodings

    def _normal(self, text: str) -> str:
        normalizer = self._tokenizer.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def _reader(self, text: str) -> Tokenizer:
        """Return what takes no characters of a text for one of the model's own tokens."""
        spelled = self._tokenizer.encode(text, add_special_tokens=False).tokens
        return self._tokenizer if self._own_names.isdisjoint(spelled) else self._literal

    @cached_property
    def _literal(self) -> Tokenizer:
        return plain(_without_own(self._tokenizer))

    def forget(self) -> None:
        """Drop all that is remembered."""
        with self._lock:
            self._known, self._bytes = {}, 0

    def _remember(self, new: dict[str, Ids | None]) -> None:
        with self._lock:
            for text, ids in new.items():
                if ids is not None and text not in self._known:
                    self._known[text] = ids
                    self._bytes += _cost(text, ids)
            while self._bytes > self.room:
                for text in list(islice(self._known, 1 + len(self._known) // 8)):
                    self._bytes -= _cost(text, self._known.pop(text))


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """Switch off padding, truncation and the reading of special tokens out of text; gives it back."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _without_own(tokenizer: Tokenizer) -> Tokenizer:
    """Copy a tokenizer so that no text matches the model's own tokens; all other ids stay.

    SentencePiece never matches control pieces in a text; tokenizers matches every piece of the vocabulary.
    """
    settings = json.loads(tokenizer.to_str())
    own = {token["content"] for token in settings["added_tokens"] if token["special"]}
    settings["added_tokens"] = [token for token in settings["added_tokens"] if not token["special"]]
    model = settings["model"]
    if isinstance(model["vocab"], list):  # Unigram; nothing matches an empty piece
        model["vocab"] = [["" if piece in own else piece, score] for piece, score in model["vocab"]]
    else:
        model["vocab"] = {"\0" * (piece in own) + piece: i for piece, i in model["vocab"].items()}
        if model.get("unk_token") in own:
            model["unk_token"] = "\0" + model["unk_token"]
        if "merges" in model:
            model["merges"] = [pair for pair in model["merges"] if "".join(pair) not in own]
    return Tokenizer.from_str(json.dumps(settings))


def _cost(text: str, ids: Ids) -> int:
    return 300 + len(text) + ids.kept.nbytes


_TOKENIZER: Final = "tokenizer.json"
_TABLE: Final = "table.bin"
_POLICY: Final = "policy.json"


class QueryPolicy(msgspec.Struct, frozen=True):
    """Reading of queries: the prompt before one, and most tokens of it."""

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
        """Number of words, v."""
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
