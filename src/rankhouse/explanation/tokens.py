"""Late interaction and sparse encoders: scores that are sums over tokens, read off exactly.

A ColBERT's score is a sum of best matches, one for each token of the query (Khattab, Zaharia, 2020, eq. 2); a
sparse encoder's is a sum over the words of its vocabulary that both sides have a weight for (Formal et al.,
2021, eq. 1). Nothing is approximated; the vectors and weights are those of words in their context.
Shapes: q tokens of a query, p of a passage, w words of it.
"""

from __future__ import annotations

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair, Ranker
from rankhouse.core.scores import Doubles, base_of
from rankhouse.explanation.answer import Explanation, Grid, Part, ReadText, Word
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.explanation.units import numbered
from rankhouse.explanation.vectors import (
    PROMPT,
    SPECIAL,
    TokenOwners,
    owners_of,
    unread_tokens,
    unread_words,
)
from rankhouse.explanation.word_texts import words_read
from rankhouse.models.colbert import LateInteraction
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.sparse_ranker import SparseRanker

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
    said = words_read(read.words, values.tolist(), grid, asked.words)
    return Explanation(
        pair.query,
        pair.passage.doc_id,
        score,
        "best matches",
        exact=True,
        unit=base_of(ranker.scale),
        parts=tuple(_query_parts(asked, read, whose, theirs[where], shares=shares)),
        texts=(ReadText(pair.passage.index, (*said, *unread_words(read.rest))),),
        query_words=tuple(asked.words),
        grids=(Grid("cosines", tuple(numbered(asked.words)), tuple(read.words), grid),),
        notes=(_CREDIT, *unread_tokens(query=asked, passage=read)),
        ranker=ranker.fingerprint,
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
    return Explanation(
        pair.query,
        pair.passage.doc_id,
        score,
        "vocabulary",
        exact=True,
        unit=base_of(ranker.scale),
        parts=tuple(parts),
        texts=(ReadText(pair.passage.index, (*_weighed(read, ids, addends), *unread_words(read.rest))),),
        notes=(_EXPANSION, *unread_tokens(passage=read)),
        ranker=ranker.fingerprint,
    )


def _weighed(read: TokenOwners, ids: np.ndarray, addends: Doubles) -> list[Word]:
    """Return the words of a passage, each with what its tokens add; a repeated token shares with itself."""
    shares = addends[ids] / np.bincount(ids, minlength=len(addends))[ids]
    values: Doubles = np.zeros(len(read.words))
    np.add.at(values, read.owners[read.owners >= 0], shares[read.owners >= 0])
    return [Word(word, value) for word, value in zip(read.words, values.tolist(), strict=True)]
