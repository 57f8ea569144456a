"""Prompts: what stands around query and document for a decoder, and how a pair becomes its ids.

A decoder that ranks was trained with one prompt, and gives random scores with any other. A prompt is a list
of segments, tokenised apart as the makers' own code does; "{query}" and "{document}" stand for the texts.
Special tokens of the vocabulary are read as such in what stands around them, never in the texts. Sources of
the known ones: QwenLM/Qwen3-Embedding, mixedbread-ai/mxbai-rerank, FlagOpen/FlagEmbedding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.checkpoint import quiet, read_json
from rankhouse.models.checkpoint_kinds import default_prompt
from rankhouse.models.pair_encoding import Layout, PairReader, PassageTokens, fit
from rankhouse.models.text_ids import IdArray, Ids, TextIds
from rankhouse.nn.layers.ragged import Packed

_SLOT = re.compile(r"\{(query|document)\}")
_PROBES = ("a", "Zebra 7", "naïve", "東京", "(x)")


class KnownPrompt(NamedTuple):
    """A prompt that published checkpoints were trained with."""

    names: str  # regular expression for the last part of their hub names, in small letters
    segments: tuple[str, ...]  # of the prompt; "{instruction}" in them stands for the task
    targets: tuple[str, ...]  # words for relevant and, if the checkpoint has one, not relevant
    instruction: str = ""  # the task where none is given
    lead: str = "{}"  # what "{instruction}" becomes where a task is given: "{}" is the task
    max_length: int = 8_192  # most tokens of the whole input

    def filled(self, instruction: str | None) -> tuple[str, ...]:
        """Return the segments for a task; None: the usual one."""
        task = self.instruction if instruction is None else instruction
        lead = self.lead.replace("{}", task) if task else ""
        return tuple(segment.replace("{instruction}", lead) for segment in self.segments)


_MXBAI_TASK: Final = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each "
    "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
    "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:"
)
_CHAT: Final = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n"
KNOWN: Final = {
    "qwen3-reranker": KnownPrompt(
        r"qwen3-reranker",
        (
            _CHAT.replace(
                "{}",
                "Judge whether the Document meets the requirements based on the Query and the Instruct "
                'provided. Note that the answer can only be "yes" or "no".',
            ),
            "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}",
            "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
        ("yes", "no"),
        "Given a web search query, retrieve relevant passages that answer the query",
    ),
    "mxbai-rerank-v2": KnownPrompt(
        r"mxbai-rerank-(base|large)-v2",
        (
            _CHAT.replace("{}", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
            "{instruction}query: {query}",
            "\n",
            "document: {document}",
            "\n",
            _MXBAI_TASK,
            "<|im_end|>\n<|im_start|>assistant\n",
        ),
        ("1", "0"),
        lead="instruction: {}\n",
    ),
    "bge-reranker-v2-gemma": KnownPrompt(
        r"bge-reranker-v2-gemma",
        ("<bos>", "A: {query}", "\n", "B: {document}", "\n", "{instruction}"),
        ("Yes",),
        "Given a query A and a passage B, determine whether the passage contains an answer to the query by "
        "providing a prediction of either 'Yes' or 'No'.",
        max_length=550,  # 512 of texts, as its makers' code has it
    ),
}
"""Name -> prompt, as ``causal("DIR", prompt="qwen3-reranker")`` takes it."""


def known_prompt(name: str) -> KnownPrompt | None:
    """Return the prompt that a checkpoint of this hub name or folder was trained with, if it is known."""
    last = name.partition("@")[0].rstrip("/").split("/")[-1].lower()
    return next((prompt for prompt in KNOWN.values() if re.search(prompt.names, last)), None)


def chat_prompt(folder: Path, instruction: str | None) -> tuple[str, ...] | None:
    """Return the prompt that a checkpoint's chat template makes of a query and a document, as one segment.

    sentence-transformers writes such templates: a message each in the roles "query" and "document", and one
    in the role "system" for the instruction.
    """
    from transformers import AutoTokenizer  # noqa: PLC0415  # slow to import

    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception:  # noqa: BLE001  # whatever it raises: no tokenizer, no template
        return None
    own: dict[str, Any] = next(map(read_json, sorted(folder.glob("sentence_*_config.json"))), {})
    inputs, given = (
        own.get("modality_config"),
        (own.get("processing_kwargs") or {}).get("chat_template") or {},
    )
    options = {name: value for name, value in given.items() if name != "restore_suffix"}  # that is done here
    if not tokenizer.chat_template or (inputs is not None and "message" not in inputs):
        return None
    task = default_prompt(folder) if instruction is None else instruction
    for structured in (False, True):
        contents = {"system": task, "query": "{query}", "document": "{document}"}
        messages = [
            {"role": role, "content": [{"type": "text", "text": content}] if structured else content}
            for role, content in contents.items()
            if content
        ]
        try:
            text = str(tokenizer.apply_chat_template(messages, tokenize=False, **options))  # type: ignore[arg-type]  # typed too narrowly
        except Exception:  # noqa: BLE001, S112  # whatever a template raises: it is not made for these roles
            continue
        if sorted(_SLOT.findall(text)) == ["document", "query"]:
            return (text,)
    return None


def check_prompt(segments: Sequence[str]) -> None:
    """Refuse a prompt in which a pair cannot stand.

    Raises WrongUse: "{query}" or "{document}" does not stand in it exactly once, or nothing ends it.
    """
    slots = _SLOT.findall("".join(segments))
    if sorted(slots) != ["document", "query"]:
        raise WrongUse(
            f"the prompt {''.join(segments)!r:.200} names {' and '.join(slots) or 'neither text'}; it must "
            'hold {query} and {document} once each, as in  prompt=("Query: {query}", '
            '"\\nDocument: {document}", "\\nRelevant:")'
        )


class _Segment(NamedTuple):
    """A segment with a text in it."""

    pieces: tuple[str, ...]  # what stands before, between and behind the texts
    slots: tuple[str, ...]  # "query", "document", or both in their order

    def filled(self, texts: dict[str, str]) -> str:
        """Put the texts in."""
        inner = (texts[slot] + piece for slot, piece in zip(self.slots, self.pieces[1:], strict=True))
        return self.pieces[0] + "".join(inner)


class PromptReader(PairReader):
    """Puts prompts together.

    Args:
        texts: Tokenises what holds a text.
        tokenizer: The same vocabulary.

    Attributes:
        beginning: The ids that prompts begin with, of nearly all pairs.
    """

    def __init__(
        self, texts: TextIds, tokenizer: Tokenizer, segments: Sequence[str], max_length: int
    ) -> None:
        reader = Tokenizer.from_str(tokenizer.to_str())
        reader.encode_special_tokens = False
        own = [token.content for token in reader.get_added_tokens_decoder().values() if token.special]
        self._parts: list[_Segment | IdArray] = []
        for segment in _apart(segments, own):
            pieces = _SLOT.split(segment)
            if len(pieces) > 1:
                self._parts.append(_Segment(tuple(pieces[::2]), tuple(pieces[1::2])))
            else:
                ids = reader.encode(segment, add_special_tokens=False).ids
                self._parts.append(np.array(ids, np.int32))
        fixed = [part for part in self._parts if not isinstance(part, _Segment)]
        layout = Layout((), (), tuple(int(i) for part in fixed for i in part))
        super().__init__(texts, layout, max_length, whole=lambda *_: [])
        self.beginning = self._common()

    def __call__(self, pairs: Sequence[Pair]) -> Packed:
        """Encode n pairs."""
        rows, sizes = [], np.zeros((len(pairs), 5), np.int64)
        lost, query_lost = torch.zeros((2, len(pairs)), dtype=torch.int64)
        self.texts([text for pair in pairs for text in self._filled(pair)])  # together, in threads
        for number, pair in enumerate(pairs):
            row, lost[number], query_lost[number] = self._row(pair)
            rows.append(row)
            sizes[number, 0] = len(row)
        return self._packed(rows, sizes, lost, query_lost)

    def passage_tokens(self, pair: Pair) -> PassageTokens:
        """Return where a passage's tokens stand, nearly: the first may be joined with what is before it."""
        spans = self.texts.spans(pair.passage.text)
        lost = min(self._row(pair)[1], len(spans))
        return PassageTokens(0, tuple(spans[: len(spans) - lost]), len(spans))

    def _filled(self, pair: Pair) -> list[str]:
        texts = {"query": pair.query.text, "document": pair.passage.text}
        return [part.filled(texts) for part in self._parts if isinstance(part, _Segment)]

    def _row(self, pair: Pair) -> tuple[IdArray, int, int]:
        """Return a pair's ids, how many ids of its texts they lack, and how many of the query's."""
        ids = self.texts(self._filled(pair))
        room = self._max_length - self._layout.fixed
        over, of_query = sum(one.total for one in ids) - room, 0
        if over > 0:
            ids, of_query = self._cut(pair, ids, room)
        given = iter(ids)
        row = [next(given).kept if isinstance(part, _Segment) else part for part in self._parts]
        return np.concatenate(row), max(over, 0), min(max(over, 0), of_query)

    def _cut(self, pair: Pair, ids: Sequence[Ids], room: int) -> tuple[list[Ids], int]:
        """Shorten a pair's segments: the document, and the query, where need be, by so many."""
        segments = [part for part in self._parts if isinstance(part, _Segment)]
        last = segments[-1]
        others = sum(one.total for one in ids[:-1])
        if last.slots[-1] == "document" and not last.pieces[-1]:
            least = others if len(segments) > 1 else self.texts([last.filled(_only_query(pair))])[0].total
            if least <= room - room // 4:
                return [*ids[:-1], Ids(ids[-1].kept[: room - others], room - others)], 0
        return self._cut_pieces(pair, segments, room)

    def _cut_pieces(self, pair: Pair, segments: Sequence[_Segment], room: int) -> tuple[list[Ids], int]:
        """Tokenise every piece apart and shorten the two texts; return how many ids the query lacks, too."""
        fixed = {piece: self.texts([piece])[0].kept for one in segments for piece in one.pieces}
        query, document = self.texts([pair.query.text, pair.passage.text])
        left = room - sum(len(fixed[piece]) for one in segments for piece in one.pieces)
        if left < 2:
            raise WrongUse(
                f"max_length={self._max_length}: the prompt alone has {self._max_length - left} tokens; "
                "give more"
            )
        q, d = fit(query.total, document.total, left)
        kept = {"query": query.kept[:q], "document": document.kept[:d]}
        rows = []
        for one in segments:
            inner = [
                part
                for slot, piece in zip(one.slots, one.pieces[1:], strict=True)
                for part in (kept[slot], fixed[piece])
            ]
            row = np.concatenate([fixed[one.pieces[0]], *inner])
            rows.append(Ids(row, len(row)))
        return rows, query.total - q

    def _common(self) -> list[int]:
        """Return the ids that the prompts of probes have in common at their beginning, short of the texts."""
        sides = zip(_PROBES, reversed(_PROBES), strict=True)
        pairs = [Pair(Query("", query), Passage("", 0, passage)) for query, passage in sides]
        rows: list[list[int]] = [self._row(pair)[0].tolist() for pair in pairs]
        same = 0
        while all(row[same : same + 1] == rows[0][same : same + 1] != [] for row in rows):
            same += 1
        return rows[0][:same]


def _only_query(pair: Pair) -> dict[str, str]:
    return {"query": pair.query.text, "document": ""}


def _apart(segments: Sequence[str], own: Sequence[str]) -> list[str]:
    """Cut segments that hold texts at the special tokens around them, where every tokeniser cuts."""
    mark = re.compile("(" + "|".join(re.escape(name) for name in sorted(own, key=len, reverse=True)) + ")")
    parts: list[str] = []
    for segment in segments:
        cut = mark.split(segment) if own and _SLOT.search(segment) else [segment]
        parts += [part for part in cut if part]
    return parts
