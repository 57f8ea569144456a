"""Recall of a structure, measured on the stored vectors."""

import numpy as np
import pytest

pytest.importorskip("faiss")

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document
from rankhouse.index.dense.check import measured_recall, structures
from rankhouse.index.dense.faiss import build
from rankhouse.index.dense.vectors import EncodeOptions, encode


class Drawn:
    """Every text has a random vector of its own."""

    fingerprint, similarity = "drawn", "cosine"

    def encode_passages(self, texts):
        return np.stack([np.random.default_rng(int(text)).normal(size=32) for text in texts])

    encode_queries = encode_passages


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    documents = [Document(f"d{i}", str(i)) for i in range(3_000)]
    return encode(Drawn(), documents, tmp_path_factory.mktemp("v") / "v", EncodeOptions(3_000, "c"))


@pytest.mark.slow
def test_a_structure_that_sees_everything_misses_nothing_and_a_hasty_one_does(vectors):
    assert structures(vectors) == []
    build(vectors, "flat")
    build(vectors, "ivf(lists=60, probe=2)")
    assert structures(vectors) == ["flat", "ivf"]
    assert measured_recall(vectors, "flat") == 1
    hasty = measured_recall(vectors, "ivf")
    assert 0.1 < hasty < 0.9
    assert hasty < measured_recall(vectors, "ivf(probe=30)") < measured_recall(vectors, "ivf(probe=60)") == 1
    assert measured_recall(vectors, "ivf") == hasty


def test_what_was_not_built_cannot_be_measured(vectors):
    with pytest.raises(WrongUse, match="has no structure sq8"):
        measured_recall(vectors, "sq8")
