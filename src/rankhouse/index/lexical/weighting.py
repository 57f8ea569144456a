"""Weights of a term's occurrences: one small function a formula, each with its source.

Lucene's forms follow Lucene 9 number by number: float32 where it computes in float, float64 where in double,
so that equal documents get equal scores and rankings agree. tf and length may be any arrays that broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import write

# Beyond these, scores of different documents become equal in float32, or infinite.
_MOST, _LEAST = 1e4, 1e-9

# float32 where Lucene computes in float, float64 elsewhere; tf and length may be integers
Floats = NDArray[Any]


class Collection(NamedTuple):
    """Statistics of a whole index.

    Attributes:
        documents: All documents, empty ones too.
        with_text: Documents whose title or text is not blank; those that Anserini would index.
        with_terms: Documents that have at least one term; Lucene's "documents with the field".
        tokens: Occurrences of all terms.
        with_fields: Documents whose titles are counted apart.
        title_tokens: Occurrences of all terms in these titles.
    """

    documents: int
    with_text: int
    with_terms: int
    tokens: int
    with_fields: int = 0
    title_tokens: int = 0

    @property
    def mean_length(self) -> float:
        """Tokens a document that has any, as float32: Lucene's avgdl."""
        return float(np.float32(self.tokens / max(1, self.with_terms)))


class TermCounts(NamedTuple):
    """Statistics of one term in a whole index: documents that hold it, and its occurrences."""

    documents: int
    occurrences: int


class TermFormula(Protocol):
    """Weight of a term's occurrences; tf and length broadcast."""

    def __call__(
        self, tf: Floats, length: Floats, counts: TermCounts, collection: Collection, boost: float
    ) -> Floats:
        """Score documents by the term's count in each, and their lengths."""
        ...


class Ratio(NamedTuple):
    """A term formula as the kernel computes it: float32 w - w / (1 + tf g), with w the boost times a fact.

    Attributes:
        by_length: (lengths, collection) -> g, float32.
        fact: (counts of the term, collection) -> the fact.
    """

    by_length: Callable[[Floats, Collection], Floats]
    fact: Callable[[TermCounts, Collection], float]


class Sum(NamedTuple):
    """A term formula as the kernel computes it: max(0, boost (rise + fall)), in float64, then float32.

    Attributes:
        rise: (tf, p) -> what rises with the count, of terms that occur with probability p.
        probability: (counts of the term, collection) -> p.
        fall: lengths -> what falls with the length; None for nothing.
    """

    rise: Callable[[Floats, Floats], Floats]
    probability: Callable[[TermCounts, Collection], float]
    fall: Callable[[Floats], Floats] | None


class Prior(NamedTuple):
    """Addend of each document that matched: a constant of the query, and a weight times a norm.

    Attributes:
        parts: ((boost, counts) of all query terms, collection) -> the constant and the weight.
        norm: lengths -> the norm.
    """

    parts: Callable[[list[tuple[float, TermCounts]], Collection], tuple[float, float]]
    norm: Callable[[Floats], Floats]

    def __call__(
        self, length: Floats, boosts: list[tuple[float, TermCounts]], collection: Collection
    ) -> Floats:
        """Return what documents of these lengths get."""
        constant, weight = self.parts(boosts, collection)
        return np.asarray(constant + weight * self.norm(length))


class FieldCounts(NamedTuple):
    """Counts of a term in titles and in texts, and how long these are; (n,) float64 each."""

    title: Floats
    text: Floats
    title_length: Floats
    text_length: Floats


Asked = Mapping[str, tuple[float, TermCounts]]
"""The terms of a query that documents hold: how often each occurs in it, and its counts."""
LeafFormula = Callable[[float, float, TermCounts, Collection], dict[str, float]]


@dataclass(frozen=True)
class Weighting:
    """A retrieval model.

    Attributes:
        notation: How it is written: ``bm25(k1=0.9, b=0.4)``.
        term: Scores the occurrences of one term.
        prior: What each document that matched gets once; None for nothing.
        form: The same as ``term``, as the compiled kernel computes it; None has it look up a table.
        exact_lengths: True lengths instead of Lucene's one-byte ones.
        log_scores: Scores are log probabilities; feedback weighs documents by their exponential.
        mean: Boosts are divided by their sum before anything else.
        joined: (counts in each field, collection) -> the counts that ``term`` scores; None: those in both.
        asked: (terms of a query, collection) -> the boost of each; None: how often it occurs there.
        content: Function words of a query are left out, unless it holds nothing else.
        leaves: (tf, length, counts of the term, collection) -> what a term's score is made of, by names.
        addends: Those leaves which, each times the boost, sum to the term's score unless it is cut at 0;
            none where the score is a product.
    """

    notation: str
    term: TermFormula
    prior: Prior | None = None
    form: Ratio | Sum | None = None
    exact_lengths: bool = False
    log_scores: bool = False
    mean: bool = False
    joined: Callable[[FieldCounts, Collection], Floats] | None = None
    asked: Callable[[Asked, Collection], dict[str, float]] | None = None
    content: bool = False
    leaves: LeafFormula = lambda *_: {}
    addends: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.notation


def bm25(tf: Floats, length: Floats, idf: float, boost: float, k1: float, b: float, mean: float) -> Floats:
    """BM25 without the factor (k1 + 1), as Lucene 8 and later (Robertson & Zaragoza 2009, eq. 3.15).

    idf * tf / (tf + k1 (1 - b + b length / mean)), in Lucene's float32 form w - w / (1 + tf / norm).
    """
    weight = np.float32(boost) * np.float32(idf)
    with np.errstate(invalid="ignore"):  # infinite times 0
        scores = weight - weight / (np.float32(1) + tf.astype(np.float32) * bm25_inverse(length, k1, b, mean))
    return np.where(tf == 0, np.float32(0), scores)


def bm25_inverse(length: Floats, k1: float, b: float, mean: float) -> Floats:
    """1 / (k1 (1 - b + b length / mean)), in float32."""
    one, k1_, b_ = np.float32(1), np.float32(k1), np.float32(b)
    # The norm is 0 with k1 = 0, or b = 1 and no length; the mean is 0 where no document has terms.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(one / (k1_ * ((one - b_) + b_ * length.astype(np.float32) / np.float32(mean))))


def lucene_idf(counts: TermCounts, collection: Collection) -> float:
    """ln(1 + (N - n + .5) / (n + .5)), never negative (Lucene's BM25Similarity)."""
    n = counts.documents
    return math.log(1 + (collection.with_terms - n + 0.5) / (n + 0.5))


def dirichlet(tf: Floats, length: Floats, p: float, boost: float, mu: float) -> Floats:
    """Lucene's Dirichlet smoothing: ln(1 + tf / (mu p)) + ln(mu / (length + mu)), cut at 0.

    Zhai & Lafferty 2004, eq. 6, rearranged; the cut, and terms without a match adding nothing, are Lucene's.
    """
    return np.maximum(0.0, boost * (_dirichlet_weight(tf, p, mu) + _dirichlet_norm(length, mu)))


def _dirichlet_weight(tf: Floats, p: Floats | float, mu: float) -> Floats:
    return np.asarray(np.log(1 + tf / (mu * p)))


def _dirichlet_norm(length: Floats, mu: float) -> Floats:
    return np.asarray(np.log(mu / (length + mu)))


def jelinek_mercer(tf: Floats, length: Floats, p: float, boost: float, weight: float) -> Floats:
    """Lucene's Jelinek-Mercer smoothing: ln(1 + (1 - lambda) tf / length / (lambda p))."""
    return boost * np.log(1 + ((1 - weight) * tf / length) / (weight * p))


def lucene_probability(counts: TermCounts, collection: Collection) -> float:
    """A term's probability in the collection, (cf + 1) / (C + 1) (Lucene's DefaultCollectionModel)."""
    return (counts.occurrences + 1) / (collection.tokens + 1)


def _bm25(k1: float = 0.9, b: float = 0.4, lengths: str = "lucene", query: str = "counts") -> Weighting:
    """BM25; ``lengths="exact"`` takes true document lengths instead of Lucene's one-byte ones.

    ``query="bm25"`` weighs the terms of the query as those of a document are, idf and all, for queries as
    long as documents: BRIGHT's baseline (Su et al. 2024, by gensim's LuceneBM25Model on both sides).
    ``query="content"`` leaves out the function words of an English question: manuals hardly have them.
    """
    _check("bm25", "k1", k1, 0 <= k1 <= _MOST, what="0 or more, and at most 10,000")
    _check("bm25", "b", b, 0 <= b <= 1, what="between 0 and 1")
    _check("bm25", "lengths", lengths, lengths in ("lucene", "exact"), what='"lucene" or "exact"')
    _check("bm25", "query", query, query in ("counts", "bm25", "content"), what='"counts", "bm25", "content"')

    def term(tf: Floats, length: Floats, counts: TermCounts, collection: Collection, boost: float) -> Floats:
        return bm25(
            tf, length, lucene_idf(counts, collection), boost, k1=k1, b=b, mean=collection.mean_length
        )

    def leaves(tf: float, length: float, counts: TermCounts, collection: Collection) -> dict[str, float]:
        idf, mean = lucene_idf(counts, collection), collection.mean_length
        saturation = bm25(np.array([tf]), np.array([length]), 1.0, 1.0, k1=k1, b=b, mean=mean)
        facts = {"idf": idf, "saturation": float(saturation[0])}
        return facts | {"k1": k1, "b": b, "length": length, "mean length": mean}

    def by_length(length: Floats, collection: Collection) -> Floats:
        return bm25_inverse(length, k1, b, collection.mean_length)

    def asked(terms: Asked, collection: Collection) -> dict[str, float]:
        length = sum(tf for tf, _ in terms.values())
        norm = k1 * (1 - b + b * length / max(collection.mean_length, _LEAST))
        return {t: lucene_idf(counts, collection) * tf / (tf + norm) for t, (tf, counts) in terms.items()}

    options = {"lengths": lengths, "query": query}
    others = {name: value for name, value in options.items() if value not in ("lucene", "counts")}
    return Weighting(
        write("bm25", k1=k1, b=b, **others),
        term,
        form=Ratio(by_length, lucene_idf),
        exact_lengths=lengths == "exact",
        asked=asked if query == "bm25" else None,
        content=query == "content",
        leaves=leaves,
    )


def _bm25f(
    title: float = 2, text: float = 1, k1: float = 0.9, b_title: float = 0.4, b_text: float = 0.4
) -> Weighting:
    """BM25F: what a term counts in title and text is divided by their lengths, weighed and added first.

    idf tf' / (k1 + tf'), tf' the sum over fields of weight tf / (1 - b + b length / mean length) (Zaragoza,
    Craswell, Taylor, Saria & Robertson, TREC 2004; Robertson & Zaragoza 2009, section 3.6). idf counts the
    documents with the term in either field; lengths are true ones, means are over documents with any term.
    """
    weights, shares = {"title": title, "text": text}, {"b_title": b_title, "b_text": b_text}
    for name, value in (*weights.items(), ("k1", k1)):
        _check("bm25f", name, value, 0 <= value <= _MOST, what="0 or more, and at most 10,000")
    for name, value in shares.items():
        _check("bm25f", name, value, 0 <= value <= 1, what="between 0 and 1")
    _check("bm25f", "text", text, title + text > 0, what="above 0 where title is 0")

    def joined(counts: FieldCounts, collection: Collection) -> Floats:
        tokens = np.array([collection.title_tokens, collection.tokens - collection.title_tokens])
        means = np.maximum(tokens / max(1, collection.with_terms), _LEAST)
        # A norm is 0 with b = 1 where a field is empty, and so is its count.
        of_title = np.maximum(1 - b_title + b_title * counts.title_length / means[0], _LEAST)
        of_text = np.maximum(1 - b_text + b_text * counts.text_length / means[1], _LEAST)
        return np.asarray(title * counts.title / of_title + text * counts.text / of_text)

    def term(tf: Floats, length: Floats, counts: TermCounts, collection: Collection, boost: float) -> Floats:
        del length  # it is in the count
        return np.asarray(boost * lucene_idf(counts, collection) * tf / np.maximum(k1 + tf, _LEAST))

    def leaves(tf: float, length: float, counts: TermCounts, collection: Collection) -> dict[str, float]:
        facts = {"idf": lucene_idf(counts, collection), "saturation": tf / max(k1 + tf, _LEAST)}
        return facts | {"tf of both fields": tf, "k1": k1} | weights | shares | {"length": length}

    notation = write("bm25f", **weights, k1=k1, **shares)
    return Weighting(notation, term, joined=joined, exact_lengths=True, leaves=leaves)


def _ql(mu: float | None = None, form: str = "lucene", combine: str = "mean") -> Weighting:
    """Query likelihood with Dirichlet smoothing, in Lucene's form (mu 1000) or Indri's (mu 2500)."""
    _check("ql", "form", form, form in ("lucene", "indri"), what='"lucene" or "indri"')
    _check("ql", "combine", combine, combine in ("mean", "sum"), what='"mean" or "sum"')
    chosen = (1000 if form == "lucene" else 2500) if mu is None else mu
    _check("ql", "mu", chosen, _LEAST <= chosen <= 1 / _LEAST, what="above 0: from 1e-9 to 1e9")
    if form == "indri":
        return _indri(chosen, combine)

    def term(tf: Floats, length: Floats, counts: TermCounts, collection: Collection, boost: float) -> Floats:
        return dirichlet(tf, length, lucene_probability(counts, collection), boost, mu=chosen)

    def leaves(tf: float, length: float, counts: TermCounts, collection: Collection) -> dict[str, float]:
        p = lucene_probability(counts, collection)
        weight, norm = _dirichlet_weight(np.array(tf), p, chosen), _dirichlet_norm(np.array(length), chosen)
        # Named as in Lucene's own explanations.
        named = {"term weight": float(weight), "document norm": float(norm)}
        return named | {"p": p, "mu": chosen, "length": length}

    weight, norm = partial(_dirichlet_weight, mu=chosen), partial(_dirichlet_norm, mu=chosen)
    addends = ("term weight", "document norm")
    formula = Sum(weight, lucene_probability, norm)
    return Weighting(write("ql", mu=chosen), term, form=formula, leaves=leaves, addends=addends)


def _indri(mu: float, combine: str) -> Weighting:
    """Indri's #combine: mean (or sum) over all query terms of ln((tf + mu cf/C) / (length + mu)).

    A document needs at least one query term; words the collection does not have are left out. The sum is
    split in two: what the terms a document holds add to the score of a document that holds none (the
    prior).
    """

    def term(tf: Floats, length: Floats, counts: TermCounts, collection: Collection, boost: float) -> Floats:
        gain = boost * _dirichlet_weight(tf, share(counts, collection), mu)
        return np.broadcast_to(gain, np.broadcast_shapes(tf.shape, length.shape))

    def share(counts: TermCounts, collection: Collection) -> float:
        return counts.occurrences / collection.tokens

    def parts(boosts: list[tuple[float, TermCounts]], collection: Collection) -> tuple[float, float]:
        constant = sum(boost * math.log(share(counts, collection)) for boost, counts in boosts)
        return constant, sum(boost for boost, _ in boosts)

    def leaves(tf: float, length: float, counts: TermCounts, collection: Collection) -> dict[str, float]:
        del length  # it is all in the prior
        p = share(counts, collection)
        return {"term weight": float(_dirichlet_weight(np.array(tf), p, mu)), "p": p, "mu": mu}

    is_mean = combine == "mean"
    named = {} if is_mean else {"combine": combine}
    notation = write("ql", form="indri", mu=mu, **named)
    form = Sum(partial(_dirichlet_weight, mu=mu), share, None)
    prior = Prior(parts, partial(_dirichlet_norm, mu=mu))
    return Weighting(
        notation, term, prior, form, exact_lengths=True, log_scores=True, mean=is_mean, leaves=leaves
    )


def _jm(lambda_: float = 0.1) -> Weighting:
    """Query likelihood with Jelinek-Mercer smoothing; lambda is the collection's share."""
    _check(
        "jm", "lambda", lambda_, _LEAST <= lambda_ < 1, what="between 0 and 1, both excluded, at least 1e-9"
    )

    def term(tf: Floats, length: Floats, counts: TermCounts, collection: Collection, boost: float) -> Floats:
        # Length 0 belongs to empty documents, which hold no term; it stands in the table all the same.
        p = lucene_probability(counts, collection)
        return jelinek_mercer(tf, np.maximum(length, 1), p, boost, weight=lambda_)

    def leaves(tf: float, length: float, counts: TermCounts, collection: Collection) -> dict[str, float]:
        del tf  # it stands beside them
        return {"p": lucene_probability(counts, collection), "lambda": lambda_, "length": length}

    return Weighting(write("jm", lambda_=lambda_), term, leaves=leaves)


def _impact() -> Weighting:
    """The count itself, times the term's weight in the query: for counts that are quantised weights.

    As in indexes of learned sparse encoders (Mallia, Khattab, Suel, Tonellotto, "Learning Passage Impacts for
    Inverted Indexes", SIGIR 2021) that came by CIFF; Anserini's ImpactSimilarity.
    """

    def term(tf: Floats, length: Floats, counts: TermCounts, collection: Collection, boost: float) -> Floats:
        del counts, collection  # they are in the weights, if anywhere
        return np.broadcast_to(boost * tf, np.broadcast_shapes(tf.shape, length.shape))

    form = Sum(lambda tf, _: tf, lambda *_: 1.0, None)
    return Weighting(write("impact"), term, form=form, leaves=lambda tf, *_: {"impact": tf})


def _check(model: str, name: str, value: object, accepted: bool, what: str) -> None:
    if not accepted:
        raise WrongUse(f"{model}({name}={value!r}): {name} must be {what}")


WEIGHTINGS: dict[str, Callable[..., Weighting]] = {
    "bm25": _bm25,
    "bm25f": _bm25f,
    "ql": _ql,
    "jm": _jm,
    "impact": _impact,
}
