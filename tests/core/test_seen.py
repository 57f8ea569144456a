"""Ids given twice are found, however far apart; with at_once they are found as they come."""

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from rankhouse.core.errors import BadData, DuplicateId
from rankhouse.core.nouns import Document
from rankhouse.io import providers
from rankhouse.io.corpora import read_documents
from rankhouse.io.duplicate_ids import SeenIds
from rankhouse.io.files import Skips

HERE = Path("corpus.jsonl")


@pytest.mark.parametrize("at_once", [False, True])
def test_an_id_given_long_ago_is_found(at_once):
    seen = SeenIds(chunk=4, at_once=at_once)
    for number in range(100):
        assert seen.takes(Document(f"d{number}", ""), HERE, number)
    with pytest.raises(DuplicateId, match="d3"):
        seen.takes(Document("d3", ""), HERE, 101)
        seen.check()


def test_repeated_ids_of_two_files_are_passed_over_if_that_is_allowed(tmp_path):
    for name, numbers in (("a", range(50)), ("b", range(40, 90))):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(f'{{"id": "{n}", "text": "{name}"}}\n' for n in numbers)
        )
    sources, skips = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"], Skips(10)
    found = list(read_documents(sources, skips))
    assert [d.id for d in found] == [str(n) for n in range(90)]
    assert [d.text for d in found[40:51]] == ["a"] * 10 + ["b"]
    assert len(skips.seen) == 10
    with pytest.raises(BadData, match="the most that was allowed"):
        list(read_documents(sources, Skips(9)))


class Story(NamedTuple):
    doc_id: str
    title: str
    body: str
    marked_up_doc: str

    def default_text(self):
        return f"{self.title} {self.body}"


def test_a_public_collections_title_is_read_once(monkeypatch):
    """disks45 and msmarco-document keep title and body apart; their default text holds both."""
    stories = [Story("d1", "Storm", "The wall broke.", "<TEXT>The wall broke.</TEXT>")]
    monkeypatch.setattr(providers, "_ir_dataset", lambda *_: SimpleNamespace(docs_iter=lambda: iter(stories)))
    (document,) = read_documents(["ir_datasets:made-up"])
    assert (document.title, document.text) == ("Storm", "The wall broke.")
    assert document.full_text == "Storm The wall broke."
    assert not document.extra
