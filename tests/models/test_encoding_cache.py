"""What many queries share is encoded once, and nothing shows but the time."""

import numpy as np
import pytest
import torch

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.progress import part
from rankhouse.models.biencoder import compare, open_biencoder
from rankhouse.models.encoder_rankers import DenseRanker, EncodingCache, TextVectors


class Counting:
    """Encodes a text as (its length, 1), and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        self.asked.append(list(texts))
        vectors = np.array([[len(text), 1] for text in texts], np.float32)
        return TextVectors(vectors, np.array([len(text) // 3 for text in texts], np.int64))


def test_equal_texts_are_encoded_once_and_each_gets_its_own_vector():
    encode = Counting()
    recall = EncodingCache(encode, 10**6)
    said = recall(["ab", "abc", "ab"])
    assert encode.asked == [["ab", "abc"]]
    assert said.vectors.tolist() == [[2, 1], [3, 1], [2, 1]]
    assert said.lost.tolist() == [0, 1, 0]
    again = recall(["abc", "abcdef"])
    assert encode.asked[1:] == [["abcdef"]]
    assert again.vectors.tolist() == [[3, 1], [6, 1]]
    assert again.lost.tolist() == [1, 2]


def test_it_never_keeps_more_than_it_may_and_lets_the_oldest_go():
    encode = Counting()
    recall = EncodingCache(encode, 3 * 208)  # a vector of 8 bytes, and 200 beside it
    recall(["a", "b", "c"])
    recall(["a"])
    recall(["d"])
    assert len(recall) == 3
    recall(["a", "c", "d"])
    assert encode.asked == [["a", "b", "c"], ["d"]]
    assert recall([str(n) for n in range(50)]).vectors.shape == (50, 2)  # more than it may keep
    assert len(recall) == 3


@pytest.mark.quick("l2", "cosine")
@pytest.mark.parametrize("similarity", ["dot", "cosine", "l2"])
def test_scores_are_those_of_the_vectors_whatever_was_asked_before(checkpoint, fp32, similarity):
    model = open_biencoder(checkpoint("sentences_cls"), similarity=similarity)
    texts = ["storm over the sea", "a calm day", "storm over the sea", "", "rain " * 400]
    pairs = [
        Pair(Query(q, q), Passage(f"d{n}", 0, text)) for q in ("storm", "day") for n, text in enumerate(texts)
    ]
    fresh, used = DenseRanker(model, fp32), DenseRanker(model, fp32)
    used.score(pairs[3:6])
    scores = fresh.score(pairs)
    np.testing.assert_allclose(used.score(pairs), scores, atol=1e-6)

    queries = torch.from_numpy(fresh.encode_queries([pair.query.text for pair in pairs]))
    said = torch.from_numpy(fresh.encode_passages([pair.passage.text for pair in pairs]))
    np.testing.assert_allclose(scores, compare(queries, said, similarity).numpy(), atol=1e-5)


def test_every_pair_is_reported_also_when_its_text_was_seen_before(checkpoint, fp32):
    ranker = DenseRanker(open_biencoder(checkpoint("sentences_cls"), max_length=16), fp32)
    long = Passage("d", 0, "storm " * 40)
    pairs = [Pair(Query(str(n), f"storm {n}"), long) for n in range(3)]
    ranker.score(pairs[:1])
    lost = ranker.report.tokens_lost
    assert lost > 0
    ranker.score(pairs[1:])
    assert (ranker.report.seen, ranker.report.truncated, ranker.report.tokens_lost) == (3, 3, 3 * lost)
    assert ranker.score([]).shape == (0,)


def test_progress_does_not_begin_again_once_the_queries_are_encoded(checkpoint, fp32):
    ranker = DenseRanker(open_biencoder(checkpoint("sentences_cls")), fp32, budget=90)
    pairs = [Pair(Query(str(n), f"storm {n}"), Passage(f"d{n}", 0, f"calm {n} " * 9)) for n in range(40)]
    told = []
    with part(0, 1, told.append):
        ranker.score(pairs)
    assert told == sorted(told)
    assert len(set(told)) > 2
