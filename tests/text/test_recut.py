"""What a document is cut into does not depend on what was cut before it."""

from rankhouse.core.nouns import Document, Passage
from rankhouse.text.split import Sentences, SplitCache, Windows


class Counting:
    """Cuts at white space, and counts how often."""

    def __init__(self):
        self.cut = []

    def __call__(self, document):
        self.cut.append(document.id)
        return [Passage(document.id, n, word) for n, word in enumerate(document.text.split())]


def test_a_document_is_cut_once_and_every_query_gets_the_same_passages():
    split = Counting()
    once = SplitCache(split)
    document = Document("a", "some words here")
    assert list(once(document)) == list(once(Document("a", "some words here"))) == split(document)
    assert split.cut == ["a", "a"]  # the second is the comparison's own


def test_another_text_under_the_same_id_is_cut_anew():
    once = SplitCache(Counting())
    once(Document("a", "old words"))
    assert [passage.text for passage in once(Document("a", "new"))] == ["new"]
    assert [passage.text for passage in once(Document("a", "new", title="t"))] == ["new"]


def test_no_more_is_kept_than_said_but_a_document_of_any_size_is_cut():
    split = Counting()
    once = SplitCache(split, size=10)
    for doc_id in "aabba":
        once(Document(doc_id, "12345678"))
    assert split.cut == ["a", "b", "a"]
    assert len(once(Document("long", "word " * 100))) == 100


def test_passages_are_those_of_the_splitter():
    document = Document("a", " ".join(f"word{n}" for n in range(100)))
    for split in (Windows(10, 5, limit=3), Sentences(max_chars=50)):
        once = SplitCache(split)
        assert [list(once(document)) for _ in range(2)] == [split(document)] * 2
