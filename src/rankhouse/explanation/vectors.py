"""Encoders, read off exactly: what each word adds to a bi-encoder's, ColBERT's or sparse encoder's score.

A passage's vector d is the mean of its n tokens' states h_j, moved by linear layers; with everything but the
sum held, token j adds q·h_j / (n |d| |q|) to a cosine, q·h_j / n to a dot product, and (2q - d)·h_j / n to
minus the squared distance, which also has the part -|q|². The states are those of words in their context.
A vector of the first token, or behind a tanh, is no such sum: such rankers are explained by removal.

A ColBERT's score is a sum of best matches, one for each token of the query (Khattab, Zaharia, 2020, eq. 2); a
sparse encoder's is a sum over the words of its vocabulary that both sides have a weight for (Formal et al.,
2021, eq. 1). Nothing is approximated; the vectors and weights are those of words in their context.
Shapes: t tokens, w width of states, d width of vectors; in matches: q tokens of a query, p of a passage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import nn

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Ranker
from rankhouse.core.scores import Doubles
from rankhouse.explanation.answer import Explanation, Grid, Part, ReadText, Word
from rankhouse.explanation.methods import ExplainOptions, explanation_for
from rankhouse.explanation.removal import explain_removal
from rankhouse.explanation.units import UNREAD_LISTED, numbered, words_of
from rankhouse.explanation.word_texts import numbers, unread_note, words_read
from rankhouse.models.biencoder import BiEncoder
from rankhouse.models.colbert import LateInteraction
from rankhouse.models.encoder_rankers import DenseRanker, SparseRanker
from rankhouse.models.pair_encoding import TextReader
from rankhouse.models.ranker import NeuralRanker

SPECIAL, PROMPT, BIAS, QUERY_LENGTH = "special tokens", "prompt", "bias", "length of the query's vector"
_SIDES = ("query", "passage")
_EAST_ASIAN = 0x2E80  # from here on, scripts that write words without spaces: each token is a word
_LEAST_LENGTH = 1e-12
_IN_CONTEXT = (
    "A word's share is that of the word as read in its context; its pieces and repetitions are summed."
)


class TokenOwners(NamedTuple):
    """Words that a row's tokens belong to."""

    words: list[str]
    owners: np.ndarray  # (t,) the word of each token; -1: the model's own, -2: the prompt
    unread: int  # tokens that were not read
    rest: str  # the text behind what was read


class _Side(NamedTuple):
    """A text as the encoder read it."""

    states: Doubles  # (t, d) states behind the linear layers, without their bias
    bias: Doubles  # (d,) of all linear layers together
    text: TokenOwners


def explain_biencoder(ranker: Ranker, pair: Pair, options: ExplainOptions) -> Explanation:
    """Explain a bi-encoder's score: a part for each distinct word of the passage; else by removal."""
    if not isinstance(ranker, DenseRanker) or not all(map(_is_mean, map(ranker.model.side, _SIDES))):
        note = "This ranker's vectors are no means over words, so parts of the text were left out instead."
        return explain_removal(ranker, pair, options).noting(note)
    score = float(ranker.score([pair])[0])
    asked, read = _read(ranker, pair.query.text, "query"), _read(ranker, pair.passage.text, "passage")
    tokens, others = _addends(ranker, pair, read)
    words: Doubles = np.zeros(len(read.text.words))
    np.add.at(words, read.text.owners[read.text.owners >= 0], tokens[read.text.owners >= 0])
    cosines = _cosines(asked, read)
    said = words_read(read.text.words, words.tolist(), cosines, asked.text.words)
    left = unread_words(read.text.rest)
    notes = unread_tokens(query=asked.text, passage=read.text)
    return explanation_for(ranker, pair, score)(
        "word vectors",
        exact=True,
        parts=(*word_parts(read.text.words, words, others), *others),
        texts=(ReadText(pair.passage.index, (*said, *left)),),
        query_words=tuple(asked.text.words),
        grids=(Grid("cosines", tuple(asked.text.words), tuple(read.text.words), cosines),),
        notes=(_IN_CONTEXT, *notes),
    )


def unread_words(rest: str) -> list[Word]:
    """List the words of what was not read, the first of them."""
    return [Word(unit.text, read=False) for unit in words_of(rest)[:UNREAD_LISTED]]


def unread_tokens(**sides: TokenOwners) -> list[str]:
    """Say how many tokens of the "query" and the "passage" were not read."""
    return [
        note
        for name, side in sides.items()
        for note in unread_note(name, len(side.owners) + side.unread, len(side.owners), "tokens")
    ]


def _is_mean(model: BiEncoder) -> bool:
    """Return whether vectors are means of states, moved by nothing but linear layers."""
    return model.policy["pooling"] == "mean" and all(isinstance(layer, nn.Linear) for layer in model.dense)


def _linear(model: BiEncoder, states: Doubles) -> tuple[Doubles, Doubles]:
    """Take states (t, w) through the linear layers: (t, d) without bias, and the bias of all, (d,)."""
    bias = np.zeros(states.shape[1])
    for layer in model.dense:
        weight = numbers(layer.weight).T  # type: ignore[arg-type]  # torch's
        own = 0.0 if layer.bias is None else numbers(layer.bias)  # type: ignore[arg-type]  # torch's
        states, bias = states @ weight, bias @ weight + own
    return states, bias


def _read(ranker: DenseRanker, text: str, side: str) -> _Side:
    """Read a text as "query" or "passage": its states, and which token is whose."""
    model = ranker.model.side(side)
    encode = model.encode_queries if side == "query" else model.encode_passages
    states = ranker.token_states(encode([text]), side).astype(np.float64)
    owned = owners_of(model.text_reader, model.policy[f"{side}_prompt"], text, len(states))
    moved, bias = _linear(model, states)
    return _Side(moved, bias, owned)


def owners_of(reader: TextReader, prompt: str, text: str, count: int) -> TokenOwners:
    """Find the word that each of a row's ``count`` tokens belongs to."""
    tokens = reader.tokens(prompt + text)
    spans = [(start - len(prompt), stop - len(prompt)) for start, stop in tokens.spans]
    owners, words = np.full(count, -1), _words(text, spans)
    owners[tokens.start : tokens.start + len(spans)] = [owner for owner, _ in words]
    pieces: dict[int, str] = {}
    for owner, piece in words:
        pieces[owner] = pieces.get(owner, "") + piece
    unread = tokens.total - len(spans)
    rest = text[max((stop for _, stop in spans), default=0) :] if unread else ""
    return TokenOwners([pieces[i] for i in sorted(pieces) if i >= 0], owners, unread, rest)


def _words(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, str]]:
    """Return the word that each token belongs to (-1: none, -2: the prompt), and what it spells of it.

    Spans of the prompt's tokens end at 0 or earlier.
    """
    owners: list[tuple[int, str]] = []
    word, end, last = -1, -1, " "  # the word before: its number, where it ends, its last letter
    for start, stop in spans:
        piece = text[max(start, 0) : max(stop, 0)]
        bare = piece.strip()
        if not bare:
            owners.append((-2 if start < 0 else -1, ""))
            continue
        first = max(start, 0) + len(piece) - len(piece.lstrip())
        if first > end or not _joins(last, bare[0]):
            word += 1
        owners.append((word, bare if first >= end else text[end:stop]))
        end, last = stop, bare[-1]
    return owners


def _joins(before: str, after: str) -> bool:
    """Return whether a token continues the word before it: both are letters or digits of one word."""
    return before.isalnum() and after.isalnum() and ord(max(before, after)) < _EAST_ASIAN


def _addends(ranker: DenseRanker, pair: Pair, read: _Side) -> tuple[Doubles, list[Part]]:
    """Return what each token adds, (t,), and the parts that are no words."""
    model, n = ranker.model, len(read.states)
    query = ranker.encode_queries([pair.query.text])[0].astype(np.float64)
    mean = read.states.mean(0) + read.bias
    scaled = model.policy["normalised"] or ranker.similarity == "cosine"
    length = max(float(np.linalg.norm(mean)), _LEAST_LENGTH) if scaled else 1.0
    held = query
    if ranker.similarity == "cosine":
        held = query / max(float(np.linalg.norm(query)), _LEAST_LENGTH)
    if ranker.similarity == "l2":
        held = 2 * query - mean / length
    tokens = read.states @ held / (n * length)
    others = [(SPECIAL, tokens[read.text.owners == -1].sum()), (PROMPT, tokens[read.text.owners == -2].sum())]
    others.append((BIAS, float(held @ read.bias) / length))
    if ranker.similarity == "l2":
        others.append((QUERY_LENGTH, -float(query @ query)))
    return tokens, [Part(name, float(value)) for name, value in others if value]


def word_parts(words: list[str], values: Doubles, others: Sequence[Part]) -> list[Part]:
    """Sum the values of equal words, whatever their case: a part for each, in the order they appear.

    The names of ``others``, which are no words, are kept apart: the word "prompt" is not the prompt.
    """
    sums: dict[str, list[float]] = {}
    for word, value in zip(words, values.tolist(), strict=True):
        sums.setdefault(word.lower(), []).append(value)
    names = numbered(sums, (part.name for part in others))
    return [
        Part(name, sum(each), facts={"occurrences": len(each)})
        for name, each in zip(names, sums.values(), strict=True)
    ]


def _cosines(asked: _Side, read: _Side) -> FloatArray:
    """Return the cosines of all words, each the mean of its tokens: (query words, passage words)."""
    sides = []
    for side in (asked, read):
        sums = np.zeros((len(side.text.words), side.states.shape[1]))
        np.add.at(sums, side.text.owners[side.text.owners >= 0], side.states[side.text.owners >= 0])
        sides.append(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), _LEAST_LENGTH))
    cosines: FloatArray = (sides[0] @ sides[1].T).astype(np.float32)
    return cosines


_CREDIT = (
    "Each token of the query counts its best match in the passage; a passage word's share is what it matched."
)
_EXPANSION = "Each part is a word of the model's vocabulary that has a weight for both texts, held or not."
_OTHERS = {-1: SPECIAL, -2: PROMPT}


def explain_colbert(ranker: Ranker, pair: Pair, options: ExplainOptions) -> Explanation:
    """Explain a late interaction's score: a part for each word of the query, with what it matched."""
    del options
    model = ranker.model if isinstance(ranker, NeuralRanker) else None
    if not isinstance(ranker, NeuralRanker) or not isinstance(model, LateInteraction):
        raise WrongUse(f'{ranker!r} is no late interaction; choose method="removal", which asks any ranker')
    score = float(ranker.score([pair])[0])
    with ranker.compute.active():
        matches = model.matches(pair.query.text, pair.passage.text, ranker.compute)
    policy, cosines = model.policy, matches.values.double().cpu().numpy()
    asked_kept, read_kept = matches.asked.cpu().numpy(), matches.read.cpu().numpy()
    asked = owners_of(model.query_reader, policy["query_prompt"], pair.query.text, len(asked_kept))
    read = owners_of(model.text_reader, policy["passage_prompt"], pair.passage.text, len(read_kept))
    whose, theirs = asked.owners[asked_kept], read.owners[read_kept]
    best, where = cosines.max(1), cosines.argmax(1)
    shares = best / (len(best) if matches.is_mean else 1)
    values: Doubles = np.zeros(len(read.words))
    np.add.at(values, theirs[where][theirs[where] >= 0], shares[theirs[where] >= 0])
    grid = _by_words(cosines, whose, theirs, len(asked.words), words=len(read.words))
    words = words_read(read.words, values.tolist(), grid, asked.words)
    return explanation_for(ranker, pair, score)(
        "best matches",
        exact=True,
        parts=tuple(_query_parts(asked, read, whose, theirs[where], shares=shares)),
        texts=(ReadText(pair.passage.index, (*words, *unread_words(read.rest))),),
        query_words=tuple(asked.words),
        grids=(Grid("cosines", tuple(numbered(asked.words)), tuple(read.words), grid),),
        notes=(_CREDIT, *unread_tokens(query=asked, passage=read)),
    )


def _query_parts(
    asked: TokenOwners, read: TokenOwners, whose: np.ndarray, matched: np.ndarray, shares: Doubles
) -> list[Part]:
    """Return a part for each word of the query, and for its tokens that are no words."""
    parts = []
    for number, name in enumerate(numbered(asked.words, _OTHERS.values())):
        mine = np.flatnonzero(whose == number)
        found = dict.fromkeys(read.words[i] if i >= 0 else f"({_OTHERS[i]})" for i in matched[mine].tolist())
        note = f"matches {', '.join(found)}" if found else "is left out"
        parts.append(Part(name, float(shares[mine].sum()), note, {"tokens": len(mine)}))
    return parts + [
        Part(name, float(shares[whose == owner].sum()), facts={"tokens": int((whose == owner).sum())})
        for owner, name in _OTHERS.items()
        if (whose == owner).any()
    ]


def _by_words(
    cosines: Doubles, whose: np.ndarray, theirs: np.ndarray, query_words: int, words: int
) -> np.ndarray:
    """Return the best match of any of their tokens for each two words: (query words, words) float32."""
    grid = np.full((query_words, words), -np.inf)
    rows, columns = whose >= 0, theirs >= 0
    np.maximum.at(grid, (whose[rows][:, None], theirs[columns][None]), cosines[np.ix_(rows, columns)])
    return np.where(np.isfinite(grid), grid, 0.0).astype(np.float32)


def explain_sparse(ranker: Ranker, pair: Pair, options: ExplainOptions) -> Explanation:
    """Explain a sparse encoder's score: a part for each word of the vocabulary that both texts weigh."""
    del options
    if not isinstance(ranker, SparseRanker):
        raise WrongUse(f'{ranker!r} is no sparse encoder; choose method="removal", which asks any ranker')
    model, score = ranker.model, float(ranker.score([pair])[0])
    weights = [
        weigh([text]).toarray()[0].astype(np.float64)
        for weigh, text in (
            (ranker.query_weights, pair.query.text),
            (ranker.passage_weights, pair.passage.text),
        )
    ]
    addends = weights[0] * weights[1]
    texts = model.encode_queries([pair.query.text]), model.encode_passages([pair.passage.text])
    held = [set(batch.ids.values.tolist()) for batch in texts]
    parts = []
    for token in np.flatnonzero(addends)[np.argsort(-addends[addends != 0], kind="stable")].tolist():
        absent = [name for name, ids in zip(("query", "passage"), held, strict=True) if token not in ids]
        note = f"not in the {' or the '.join(absent)}" if absent else ""
        facts = {"query": weights[0][token], "passage": weights[1][token]}
        parts.append(Part(model.token(token), addends[token], note, facts))
    ids = texts[1].ids.values.numpy()
    read = owners_of(model.text_reader, model.policy["passage_prompt"], pair.passage.text, len(ids))
    return explanation_for(ranker, pair, score)(
        "vocabulary",
        exact=True,
        parts=tuple(parts),
        texts=(ReadText(pair.passage.index, (*_weighed(read, ids, addends), *unread_words(read.rest))),),
        notes=(_EXPANSION, *unread_tokens(passage=read)),
    )


def _weighed(read: TokenOwners, ids: np.ndarray, addends: Doubles) -> list[Word]:
    """Return the words of a passage, each with what its tokens add; a repeated token shares with itself."""
    shares = addends[ids] / np.bincount(ids, minlength=len(addends))[ids]
    values: Doubles = np.zeros(len(read.words))
    np.add.at(values, read.owners[read.owners >= 0], shares[read.owners >= 0])
    return [Word(word, value) for word, value in zip(read.words, values.tolist(), strict=True)]
