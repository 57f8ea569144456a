"""Reports of indexing."""

from rankhouse.core.nouns import Document
from rankhouse.index.lexical.build import build
from rankhouse.jobs.index import index_warnings


def test_each_warning_names_its_own_documents(tmp_path):
    documents = [Document("empty", " "), Document("stopped", "the of and"), Document("found", "a pilot")]
    assert index_warnings(build(documents, tmp_path / "i")) == [
        "1 document without text, found by no search (first: empty)",
        "1 document of nothing but stop words and punctuation, found by no search (first: stopped)",
    ]
    many = [Document(f"d{n}", "") for n in range(9)]
    [said] = index_warnings(build([*many, documents[2]], tmp_path / "j"))
    assert said.endswith("(first: d0, d1, d2, d3, d4)")
