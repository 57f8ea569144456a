"""Texts -> ids: every distinct text is tokenised once, and its ids are kept for the next time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import islice
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

IdArray = NDArray[np.int32]


_REMEMBERED = 64 * 2**20  # bytes of texts and ids kept, about 60,000 passages


class Ids(NamedTuple):
    """One text's ids.

    Attributes:
        kept: The first of them, as many as the model could ever read.
        total: How many there are.
    """

    kept: IdArray
    total: int


class Token(NamedTuple):
    """A token of a text.

    Attributes:
        id: Its number.
        text: As the vocabulary writes it.
        special: Whether it is one of the model's own.
        span: (start, end) characters of the text that it spells; None for the model's own.
    """

    id: int
    text: str
    special: bool
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
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters of a text that each of its ids spells, as (start, end)."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

    def tokens(self, text: str, special: bool) -> list[Token]:
        """Return a text's tokens one by one."""
        encoding = self._tokenizer.encode(text, add_special_tokens=special)
        rows = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
        return [Token(number, token, bool(own), None if own else span) for number, token, own, span in rows]

    def __call__(self, texts: Iterable[str]) -> list[Ids]:
        """Return the ids of texts, in the order given."""
        texts = list(texts)
        rows = {text: self._known.get(text) for text in texts}
        new = [text for text, ids in rows.items() if ids is None]
        for text, encoding in zip(
            new, self._tokenizer.encode_batch_fast(new, add_special_tokens=False), strict=True
        ):
            flat = encoding.ids
            rows[text] = Ids(np.array(flat[: self._keep], np.int32), len(flat))
        self._remember({text: rows[text] for text in new})
        return [ids for text in texts if (ids := rows[text]) is not None]

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


def _cost(text: str, ids: Ids) -> int:
    return 300 + len(text) + ids.kept.nbytes
