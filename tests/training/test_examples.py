"""Labelled pairs from both sources."""

import gzip
import json

import numpy as np
import pytest

from rankhouse.core.errors import BadData, MissingInput, RankhouseWarning
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.training.examples import from_judgements, from_pairs


def line(query, doc, text, label, passage=0, **more):
    record = {"query_id": query, "query": f"about {query}", "doc_id": doc, "passage": passage, "text": text}
    return json.dumps(record | {"label": label} | more, ensure_ascii=False)


LINES = [
    line("b", "d1", "first", 1),
    line("a", "d2", "zweiter Täxt", 0, passage=3, score=0.25),
    "",
    line("b", "d1", "same document, other passage", 0, passage=1),
    line("a", "d3", "third", True),
]


@pytest.mark.parametrize("packed", [False, True])
def test_pairs_are_read_and_their_texts_fetched_later(tmp_path, packed):
    path = tmp_path / ("pairs.jsonl.gz" if packed else "pairs.jsonl")
    content = ("\n".join(LINES) + "\n").encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    examples = from_pairs(path)
    assert [query.id for query in examples.queries] == ["b", "a"]
    assert examples.query.tolist() == [0, 0, 1, 1]
    assert examples.label.tolist() == [1, 0, 0, 1]
    passages = examples.fetch(examples.item.tolist())
    assert [tuple(p) for p in passages] == [
        ("d1", 0, "first"),
        ("d1", 1, "same document, other passage"),
        ("d2", 3, "zweiter Täxt"),
        ("d3", 0, "third"),
    ]
    documents = examples.document[examples.item]
    assert documents[0] == documents[1] != documents[2]


def test_the_grade_that_is_relevant_can_be_raised(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join([line("a", "x", "t", 1), line("a", "y", "t", 2)]))
    assert from_pairs(path, relevant_from=2).label.tolist() == [0, 1]


def test_several_files_of_pairs_are_one_set_and_faults_are_named_in_their_file(tmp_path):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    first.write_text(LINES[0])  # without an end of line
    second.write_bytes(gzip.compress("\n".join([LINES[1], LINES[3]]).encode()))
    examples = from_pairs(first, second)
    assert [query.id for query in examples.queries] == ["b", "a"]
    assert [p.text for p in examples.fetch(examples.item.tolist())] == [
        "first",
        "same document, other passage",
        "zweiter Täxt",
    ]
    second.write_bytes(gzip.compress(f"{LINES[1]}\n{{".encode()))
    with pytest.raises(BadData, match=r"b\.jsonl\.gz.*line 2: not a labelled pair"):
        from_pairs(first, second)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{"], "line 1: not a labelled pair"),
        ([LINES[0], '{"query_id": "a"}'], "line 2: .*missing"),
        ([LINES[0], line("a", "d", "t", 0.5)], "line 2: the label 0.5"),
        ([LINES[0], LINES[0].replace("about b", "of b")], 'line 2: query "b" has another text'),
        ([], "not one labelled pair"),
    ],
)
def test_faulty_pairs_are_named_by_line(tmp_path, lines, said):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(BadData, match=said):
        from_pairs(path)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(MissingInput):
        from_pairs(tmp_path / "none.jsonl")


def test_a_file_changed_while_in_use_is_noticed(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(LINES))
    examples = from_pairs(path)
    path.write_text("x" * 1000)
    with pytest.raises(BadData, match="changed while it was in use"):
        examples.fetch([1])


QUERIES = [Query("q1", "one"), Query("q2", "two"), Query("q3", "three")]
DOCUMENTS = {d: Document(d, f"text of {d}", "Title") for d in ("a", "b", "c", "d")}
QRELS = {"q1": {"a": 2, "b": 0, "c": -1}, "q2": {"d": 1}, "other": {"a": 1}}
RUN = Run.of([("q1", "c", 3.0), ("q1", "a", 2.0), ("q1", "d", 1.0), ("q2", "a", 9.0)])


def test_judgements_and_run_become_examples():
    examples = from_judgements(QUERIES, QRELS, DOCUMENTS, RUN)
    rows = {
        (examples.queries[q].id, examples.fetch([item])[0].doc_id): (label, rank)
        for q, item, label, rank in zip(
            examples.query, examples.item, examples.label, examples.rank, strict=True
        )
    }
    assert rows == {
        ("q1", "a"): (1, 1),
        ("q1", "b"): (0, -1),
        ("q1", "c"): (-1, 0),  # a grade below 0 is not judged
        ("q1", "d"): (-1, 2),
        ("q2", "d"): (1, -1),
        ("q2", "a"): (-1, 0),
    }
    assert examples.fetch([0])[0].text == "Title text of a"


def test_the_run_is_looked_at_as_deep_as_asked():
    examples = from_judgements(QUERIES, QRELS, DOCUMENTS, RUN, depth=1)
    assert examples.rank.tolist() == [-1, -1, 0, -1, 0]


def test_documents_that_are_not_there_are_left_out_and_counted():
    without = {d: text for d, text in DOCUMENTS.items() if d != "a"}
    with pytest.warns(RankhouseWarning, match="1 judged or retrieved documents are not in the collection"):
        examples = from_judgements(QUERIES, QRELS, without, RUN)
    assert len(examples) == 4


def test_judgements_of_another_collection_are_refused():
    with pytest.raises(BadData, match="name things alike"):
        from_judgements(QUERIES, {"q1": {"zz": 1}}, DOCUMENTS)


def test_a_fold_keeps_its_queries_only():
    examples = from_judgements(QUERIES, QRELS, DOCUMENTS, RUN)
    fold = examples.restrict(["q2", "unknown"])
    assert [query.id for query in fold.queries] == ["q2"]
    assert fold.query.tolist() == [0, 0]
    assert [p.doc_id for p in fold.fetch(fold.item.tolist())] == ["d", "a"]
    assert fold.fingerprint != examples.fingerprint
    assert from_judgements(QUERIES, QRELS, DOCUMENTS, RUN).fingerprint == examples.fingerprint
    assert np.all(np.diff(examples.query) >= 0)
