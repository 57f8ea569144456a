"""A dense first stage: the passage whose vector is nearest, with the number of the search."""

import math
from hashlib import blake2b

import numpy as np
import pytest

from rankhouse.core.errors import BadIndex, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.explanation.stages import explain_dense
from rankhouse.index.dense.exact import ExactSearcher, search
from rankhouse.index.dense.vectors import EncodeOptions, encode
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, append, build
from rankhouse.text.split import Windows

QUERY = Query("q", "sea moon")
TEXTS = ["sea moon tide", "", "red fox red fox sea moon", "stone", "sea sea sea moon sea fox river wind"]


class HashedWords:
    """A small real encoder: every word has a random vector of its own, a text is their sum."""

    similarity, fingerprint = "dot", "hashed"

    def encode_passages(self, texts):
        out = np.zeros((len(texts), 16), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                seed = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")
                out[row] += np.random.default_rng(seed).normal(size=16).astype(np.float32)
        return out

    encode_queries = encode_passages


class HashedRanker(HashedWords):
    """The same as a ranker of pairs."""

    scale = "similarity"

    def score(self, pairs):
        queries, passages = (
            self.encode_passages(texts)
            for texts in ([p.query.text for p in pairs], [p.passage.text for p in pairs])
        )
        return (queries * passages).sum(1)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    out = tmp_path_factory.mktemp("dense") / "index"
    documents = [Document(f"d{i}", text) for i, text in enumerate(TEXTS)]
    build(documents[:3], out, BuildOptions(workers=1))
    append(documents[3:], out, BuildOptions(workers=1))
    return Index.open(out)


def vectors_of(index, folder, split, dtype="float16", policy=""):
    options = EncodeOptions(len(index), index.fingerprint, split, policy, dtype)
    with pytest.warns(RankhouseWarning, match="no vector"):
        return encode(HashedRanker(), index.documents.stream(), folder, options)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_score_is_the_searchs_and_the_nearest_passage_is_explained(index, tmp_path, dtype):
    vectors, ranker = vectors_of(index, tmp_path / "v", Windows(3, 3), dtype), HashedRanker()
    run = search(ExactSearcher(vectors), ranker, [QUERY]).to_dict()["q"]
    assert [*run] != []
    for doc_id, score in run.items():
        answer = explain_dense(index, vectors, ranker, QUERY, doc_id)
        assert answer.score == score
        (part,) = answer.parts
        assert part.value == score
        assert math.fsum(finer.value for finer in part.parts) == pytest.approx(score, abs=1e-6)
    answer = explain_dense(index, vectors, ranker, QUERY, "d2")
    assert answer.parts[0].note == "passage 2 of 2, dot"
    assert [word.text for word in answer.texts[0].words] == ["fox", "sea", "moon"]
    assert answer.parts[0].why.score == pytest.approx(answer.score, rel=1e-3)


def test_without_a_ranker_or_a_split_that_is_known_the_passage_is_only_named(index, tmp_path):
    vectors = vectors_of(index, tmp_path / "v", Windows(3, 3))
    answer = explain_dense(index, vectors, HashedWords(), QUERY, "d4")
    assert answer.parts[0].why is None
    assert any("scores no pairs" in note for note in answer.notes)
    of_a_function = vectors_of(index, tmp_path / "w", Windows(3, 3).__call__, policy="by threes")
    answer = explain_dense(index, of_a_function, HashedRanker(), QUERY, "d4")
    assert answer.parts[0].value == answer.score
    assert any("What cut d4 into passages is not known" in note for note in answer.notes)


def test_documents_without_a_vector_and_foreign_vectors_are_refused(index, tmp_path):
    vectors = vectors_of(index, tmp_path / "v", Windows(3, 3))
    with pytest.raises(WrongUse, match="has no text, so it has no vector"):
        explain_dense(index, vectors, HashedRanker(), QUERY, "d1")
    with pytest.raises(WrongUse, match="no such document"):
        explain_dense(index, vectors, HashedRanker(), QUERY, "d9")
    other = HashedRanker()
    other.fingerprint = "another"
    with pytest.raises(BadIndex, match="was encoded by hashed"):
        explain_dense(index, vectors, other, QUERY, "d0")
