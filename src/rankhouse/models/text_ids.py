"""Texts -> ids by a tokenizer, each text once; without torch, which a table for queries does without."""

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
from tokenizers import Encoding, Tokenizer

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
        self._own_ids = frozenset(i for name, i in own.items() if name != _UNKNOWN)
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
            if not self._own_ids.isdisjoint(encoding.ids) or _UNKNOWN in texts[place]:
                encodings[place] = self._reader(texts[place]).encode(texts[place], add_special_tokens=False)
        return encodings

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
