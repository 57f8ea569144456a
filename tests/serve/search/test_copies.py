"""Copies of a text among the hits of a folder: one hit, with the names of the others."""

import pytest

from rankhouse.api.index import Index
from rankhouse.core.nouns import Document
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.passages import is_contained, wording
from rankhouse.serve.search.shapes import SearchBody

PRUNE = (
    "The prune command thins out old archives of the repository. It keeps as many daily, weekly and monthly "
    "archives as you say, and deletes all others. Run compact afterwards, which frees the space on the disk."
)
LOCK = (
    "Only one client writes into a repository at a time, so every client takes the lock of the repository "
    "first. A lock that a killed client has left behind is broken by the break lock command."
)
MARKUP = PRUNE.replace("prune command", "``prune`` command").replace("compact", ":ref:`compact`")


@pytest.fixture
def documents():
    """A manual in three formats, a book that holds it beside other chapters, and other texts."""
    texts = {
        "html/prune.html": PRUNE,
        "source/prune.rst": MARKUP,
        "copy/prune.txt": PRUNE.upper(),
        "book.txt": f"{LOCK}\n\n{PRUNE}",
        "lock.html": LOCK,
    }
    texts |= {f"other{n}.txt": f"Archive number {n} of the town holds old letters." for n in range(8)}
    return [Document(name, text) for name, text in texts.items()]


@pytest.fixture
def folder(documents, tmp_path):
    Index.build(documents, tmp_path / "index")
    return Catalogue({"index": tmp_path / "index"}, of_folder=True)


def hits(catalogue, query, **asked):
    found = search(catalogue, SearchBody(query=query, **asked)).hits
    assert [hit.rank for hit in found] == list(range(1, len(found) + 1))
    return {hit.doc_id: set(hit.copies) for hit in found}


def test_copies_and_formats_of_a_text_are_one_hit(folder):
    found = hits(folder, "thin out old archives of a repository", k=4)
    assert len(found) == 4, "the places of the copies go to the next documents"
    first = next(iter(found))
    assert {first} | found[first] >= {"html/prune.html", "source/prune.rst", "copy/prune.txt"}
    shown = [*found, *(one for copies in found.values() for one in copies)]
    assert len(shown) == len(set(shown))
    assert any(one.startswith("other") for one in found)


def test_rankings_that_are_asked_for_are_as_ever(folder, documents):
    query = "thin out old archives of a repository"
    whole = hits(folder, query, system="bm25", k=13)
    assert not any(whole.values())
    assert hits(folder, query, copies=True, k=13) == whole
    assert hits(folder, query, models=["bm25"], k=13) == whole
    assert list(hits(folder, query, k=101)) == list(whole), "over 100 nothing is compared"
    grouped = hits(folder, query, system="bm25", copies=False, k=13)
    assert {one for hit, copies in grouped.items() for one in (hit, *copies)} == set(whole), "none is lost"
    assert len(grouped) < len(whole)
    other = Catalogue({"index": folder.view().index.path})
    assert not any(hits(other, query, k=13).values()), "a collection with judgements counts every document"


def test_a_book_is_no_copy_of_a_chapter_by_another_passage_of_it(tmp_path):
    """What would be shown of either has to stand in the other."""
    filler = " ".join(f"Page {n} tells of ropes, tar and sails in the year {n}." for n in range(60))
    texts = {"book": f"The harbour pilot boards at dawn. {filler} {LOCK}", "lock": f"{LOCK} Dawn is a tool."}
    Index.build([Document(*one) for one in texts.items()], tmp_path / "index")
    catalogue = Catalogue({"index": tmp_path / "index"}, of_folder=True)
    found = hits(catalogue, "harbour pilot dawn", k=2)
    assert found == {"book": set(), "lock": set()}
    assert len(hits(catalogue, "lock of the repository that a killed client left behind", k=2)) == 1


def test_many_copies_take_no_places(tmp_path):
    """A licence in 120 folders leaves room for every other document that was found."""
    texts = {
        f"pkg{n}/license.txt": "This license of software lets everybody copy the software."
        for n in range(120)
    }
    texts |= {f"note{n}": f"{LOCK} Note {n} says that a license of kind {n} is needed." for n in range(30)}
    Index.build([Document(*one) for one in texts.items()], tmp_path / "index")
    found = hits(Catalogue({"index": tmp_path / "index"}, of_folder=True), "license of software", k=10)
    assert len(found) == 10
    assert max(map(len, found.values())) == 119


def test_documents_of_one_form_are_no_copies(tmp_path):
    """Invoices differ in a number or in a name, of which the question may ask."""
    form = (
        "Invoice {} of the harbour company. Dear {}, the total amount due for the use of the berth, "
        "the crane and the store is {}. Please pay within the month to the company's account; "
        "thank you for your visit."
    )
    names = ["Jones", "Smith", "Miller"]
    texts = {f"inv{n}": form.format(1040 + n, name, 300 + n) for n, name in enumerate(names)}
    texts |= {f"unnumbered-{name}": form.format("", name, "agreed") for name in names}
    Index.build([Document(*one) for one in texts.items()], tmp_path / "index")
    catalogue = Catalogue({"index": tmp_path / "index"}, of_folder=True)
    found = hits(catalogue, "total amount due invoice Jones", k=6)
    assert all(not copies for name, copies in found.items() if name.startswith("inv"))
    assert not found["unnumbered-Jones"]
    assert {"inv0", "inv1", "inv2", "unnumbered-Jones"} <= found.keys()


@pytest.mark.parametrize(
    ("passage", "text", "is_there"),
    [
        (PRUNE, PRUNE, True),
        (PRUNE, MARKUP, True),
        (PRUNE, f"{LOCK} {PRUNE} {LOCK}", True),
        (f"{LOCK} {PRUNE}", PRUNE, False),
        (PRUNE, LOCK, False),
        ("two words", "two words", True),
        ("two words", "two other words", False),
        ("", PRUNE, False),
        (PRUNE, "", False),
        ("...", "...", False),
    ],
)
def test_a_passage_stands_in_a_text_nearly_word_for_word(passage, text, is_there):
    assert is_contained(wording(passage), wording(text)) is is_there
