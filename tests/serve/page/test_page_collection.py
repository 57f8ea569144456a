"""The collection at a glance: lengths, kinds, and a map of vectors with the hits of a question on it."""

from hashlib import blake2b

import numpy as np
import pytest

import rankhouse as rh
from rankhouse.index.dense.vectors import EncodeOptions, encode, vectors_folder
from rankhouse.serve.page.collection import MAP_HEIGHT, MAP_WIDTH, histogram_of, kinds_of, map_of, principal
from rankhouse.serve.search.shapes import SearchHit

TOPICS = ("ship harbour pilot tide", "bread flour oven yeast", "lens star orbit moon")


class HashedWords:
    """A small real encoder: every word has a random vector of its own, a text is their sum."""

    dimension, similarity, fingerprint = 16, "cosine", "hashed-1"

    def encode_passages(self, texts):
        out = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                seed = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")
                out[row] += np.random.default_rng(seed).normal(size=self.dimension).astype(np.float32)
        return out


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("glance") / "index"
    documents = []
    for number in range(90):
        topic = number % 3
        text = " ".join(rng.choice(TOPICS[topic].split(), 5 + number))
        documents.append(rh.Document(f"{topic}/{number}.{'md' if topic else 'txt'}", text, f"Title {number}"))
    built = rh.Index.build(documents, str(path))
    encode(HashedWords(), documents, vectors_folder(path), EncodeOptions(90, built.fingerprint))
    return built


def hit(rank, doc_id):
    return SearchHit(rank, doc_id, 1 / rank, "", "", (), None)


def test_a_map_puts_like_beside_like_and_marks_the_hits(index):
    found = map_of(index, "default", [hit(1, "0/0.txt"), hit(2, "1/4.md"), hit(3, "gone")])
    assert found == map_of(index, "default", [hit(1, "0/0.txt"), hit(2, "1/4.md"), hit(3, "gone")])
    assert len(found.points) == 90
    assert "All 90 passages" in found.sentence
    assert [(one.doc_id, one.rank) for one in found.hits] == [
        ("1/4.md", 2),
        ("0/0.txt", 1),
    ]  # the best on top
    at = {one.doc_id: np.array([one.x, one.y]) for one in found.points}
    assert all(np.abs(at[one.doc_id] - [one.x, one.y]).max() < 0.2 for one in found.hits)
    assert all(0 <= x <= MAP_WIDTH and 0 <= y <= MAP_HEIGHT for x, y in at.values())
    middles = [np.mean([place for doc, place in at.items() if doc[0] == topic], axis=0) for topic in "012"]
    for doc, place in at.items():
        assert np.argmin([np.linalg.norm(place - middle) for middle in middles]) == int(doc[0])


def test_axes_do_not_turn_with_the_sign(index):
    del index
    sample = np.random.default_rng(1).normal(size=(50, 4)) * [9, 3, 1, 1]
    middle, axes, share = principal(sample)
    assert np.abs(axes[0, 0]) > 0.9
    assert all(column[np.abs(column).argmax()] > 0 for column in axes.T)
    assert 0.9 < share < 1
    np.testing.assert_allclose(principal(-sample)[1], axes, atol=1e-9)
    np.testing.assert_allclose(middle, sample.mean(axis=0))


def test_lengths_and_kinds(index):
    lengths = np.concatenate([segment.lengths for segment in index.segments])
    drawn = histogram_of(lengths)
    counts = [int(bar.text.rpartition(": ")[2].split()[0].replace(",", "")) for bar in drawn.bars]
    assert sum(counts) == 90
    assert "or more words" in drawn.bars[-1].text
    few = histogram_of(np.array([1, 1, 2]))
    assert [bar.text for bar in few.bars][1:] == ["1 word: 2 documents", "2 or more words: 1 document"]
    assert "median 1, longest 2" in few.sentence
    assert kinds_of(index) == [("md", 60, 100), ("txt", 30, 50)]


@pytest.mark.slow
def test_files_of_other_endings_count_as_others(tmp_path):
    """Manual pages were missing: the bars said less than the number of documents above them."""
    names = ("a.md", "b.md", "c.md", "ls.1.gz", "cp.1", "README")
    index = rh.Index.build([{"id": name, "text": name} for name in names], tmp_path / "index")
    assert kinds_of(index) == [("md", 3, 100), ("other", 3, 100)]


def test_a_rare_ending_has_a_bar_too(tmp_path):
    names = ["a.txt", *(f"{n}.md" for n in range(300))]
    index = rh.Index.build([{"id": name, "text": name} for name in names], tmp_path / "index", workers=1)
    assert kinds_of(index) == [("md", 300, 100), ("txt", 1, 1)]


@pytest.mark.slow
def test_a_packed_file_counts_as_what_is_packed(tmp_path):
    names = ("a.md", "b.md.gz", "c.MD.zst", "d.txt")
    index = rh.Index.build([{"id": name, "text": name} for name in names], tmp_path / "index")
    assert kinds_of(index) == [("md", 3, 100), ("txt", 1, 33)]


def test_a_collection_without_vectors_says_how_to_get_a_map(tab, at):
    with tab(java_script_enabled=False) as page:
        page.goto(f"{at}/collection")
        assert "rankhouse encode" in page.inner_text("main")
        assert page.locator(".length").count() > 1
        assert page.locator(".map").count() == 0
