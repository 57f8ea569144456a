"""Inputs of other shapes that the Python API takes, and its errors for wrong names."""

import copy
import pickle
from typing import NamedTuple

import ir_measures
import pandas as pd
import pytest

import rankhouse as rh
from rankhouse.core.arguments import checked
from rankhouse.core.errors import DuplicateId, UnknownArgument
from rankhouse.io.inputs import as_documents, as_measures, as_qrels, as_queries, as_run

TEXTS = {"1": "Pilots steer ships.", "2": "A lock lifts ships."}


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return rh.Index.build(TEXTS, "i", workers=1)


@pytest.mark.parametrize(
    "given",
    [
        TEXTS,
        {doc_id: {"text": text, "title": ""} for doc_id, text in TEXTS.items()},
        {doc_id: rh.Document(doc_id, text) for doc_id, text in TEXTS.items()},
        pd.DataFrame({"docno": [1, 2], "text": TEXTS.values(), "title": ["", float("nan")]}),
        pd.DataFrame({"id": ["1", "2"], "text": TEXTS.values()}),
    ],
)
def test_documents_come_from_mappings_and_data_frames(given):
    assert [(one.id, one.text, one.title) for one in as_documents(given)] == [
        (doc_id, text, "") for doc_id, text in TEXTS.items()
    ]


def test_documents_that_are_texts_are_told_from_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [(one.id, one.text) for one in as_documents(list(TEXTS.values()))] == [
        ("0", "Pilots steer ships."),
        ("1", "A lock lifts ships."),
    ]
    with pytest.raises(rh.RankhouseError, match="no such file"):
        list(as_documents(["my absent corpus.jsonl"]))
    with pytest.raises(rh.RankhouseError, match=r"\[document\] for a single one"):
        as_documents({"id": "a", "text": "b"})


@pytest.mark.parametrize(
    "given",
    [
        ["who steers?", "locks"],
        pd.Series(["who steers?", "locks"]),
        pd.DataFrame({"qid": [0, 1], "query": ["who steers?", "locks"]}),
        pd.DataFrame({"query_id": ["0", "1"], "text": ["who steers?", "locks"]}),
        [{"_id": "0", "text": "who steers?"}, {"id": "1", "text": "locks", "more": 1}],
    ],
)
def test_queries_come_from_texts_records_and_data_frames(given):
    assert as_queries(given) == [rh.Query("0", "who steers?"), rh.Query("1", "locks")]


def test_one_query_is_one_and_a_file_in_a_list_is_no_text(tmp_path):
    assert as_queries(rh.Query("a", "locks")) == [rh.Query("a", "locks")]
    file = tmp_path / "queries.tsv"
    file.write_text("1\tlocks\n")
    assert as_queries(file) == [rh.Query("1", "locks")]
    with pytest.raises(rh.RankhouseError, match="is a file; give one file by itself"):
        as_queries([str(file)])


def test_runs_and_judgements_come_from_rows_objects_and_data_frames(tmp_path):
    run, qrels = {"1": {"a": 2.0, "b": 1.0}}, {"1": {"a": 1, "b": 0}}
    file = tmp_path / "run.txt"
    rh.write_run(rh.Run.of(run), file)
    rows = [("1", "b", 1.0), ("1", "a", 2.0)]
    runs = [run, file, rows, [ir_measures.ScoredDoc(*row) for row in rows]]
    runs += [
        pd.DataFrame(rows, columns=names)
        for names in (["query_id", "doc_id", "score"], ["qid", "docno", "score"])
    ]
    runs += [pd.DataFrame({"qid": [1, 1], "docno": ["a", "b"], "score": [2, 1]}), {"1": rh.Run.of(run)["1"]}]
    assert all(as_run(one) == rh.Run.of(run) for one in runs)
    judged = [("1", "a", 1), ("1", "b", 0)]
    shapes = [qrels, judged, [ir_measures.Qrel(*row) for row in judged]]
    shapes += [pd.DataFrame({"qid": [1, 1], "docno": ["a", "b"], "label": [1, 0]})]
    assert all(as_qrels(one) == qrels for one in shapes)
    measures = [ir_measures.AP, ir_measures.nDCG @ 10]
    assert as_measures(measures) == ["AP", "nDCG@10"]
    assert as_measures(measures[1]) == ["nDCG@10"]
    assert rh.evaluate(rows, shapes[-1], measures).to_dict() == {"AP": 1.0, "nDCG@10": 1.0}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: as_run(rh.Run.of({"q": {"a": 1.0}})["q"]), "the run is of type Ranking"),
        (lambda: as_run([("q", "a")]), r"run, row 0: \('q', 'a'\) is not \(query id, document id, a score\)"),
        (lambda: as_run([("q", "a", "high")]), "a score of \"a\" is 'high', no number"),
        (lambda: as_qrels([("q", "0", "d", "1")]), "a grade of \"0\" is 'd', no number"),
        (lambda: as_qrels(pd.DataFrame({"qid": [1]})), 'no column "doc_id" or "docno"'),
    ],
)
def test_other_shapes_are_refused_in_words(call, words):
    with pytest.raises(rh.RankhouseError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (
            lambda index: index.search("ships", top_k=3),
            'search: there is no argument "top_k" .did you mean k=',
        ),
        (lambda index: index.search("ships", topk=3), "did you mean k="),
        (lambda index: index.retrieve({"q": "ships"}, n=3), "did you mean k="),
        (lambda index: index.retrieve(queries={"q": "ships"}, limit=3), "did you mean k="),
        (lambda index: rh.system("bm25").search("ships", index, top_n=3), "did you mean k="),
        (lambda index: rh.evaluate({}, {}, metrics="AP"), "did you mean measures="),
        (lambda index: rh.rerank("default", {}, {}, index, top_k=3), "did you mean depth="),
        (lambda index: rh.train("tk", index, output_dir="o"), "did you mean out="),
        (lambda index: rh.train("tk", index, out="o", epochs=3), "did you mean settings="),
        (lambda index: rh.explain("bm25", "ships", "1", index=index, methd="x"), "did you mean method="),
    ],
)
def test_an_argument_of_another_name_is_answered_with_ours(index, call, meant):
    with pytest.raises(UnknownArgument, match=meant) as caught:
        call(index)
    assert isinstance(caught.value, TypeError)  # as Python itself raises


def test_a_missing_argument_is_named_with_those_there_are():
    with pytest.raises(TypeError, match="explain: missing .* 'index'; it takes query, doc, against, index"):
        rh.system("bm25").explain("ships", "locks")


def test_runs_and_judgements_are_written_from_what_the_verbs_take(tmp_path):
    rh.write_run({"q": {"a": 1.0}}, tmp_path / "a.run")
    rh.write_run(pd.DataFrame({"qid": ["q"], "docno": ["a"], "score": [1.0]}), tmp_path / "b.run")
    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "b.run").read_bytes()
    rh.write_qrels([("q", "a", 1)], tmp_path / "a.qrels")
    assert rh.read_qrels(tmp_path / "a.qrels") == {"q": {"a": 1}}


@pytest.mark.parametrize("wrong", [None, b"a.run", 3, object(), "a\0b", "\ud800"])
def test_what_names_no_file_is_refused(wrong, tmp_path):
    calls = (
        rh.read_run,
        rh.read_qrels,
        rh.read_queries,
        lambda path: list(rh.read_documents(path)),
        lambda path: list(rh.read_documents([path])),
        lambda path: rh.write_run({"q": {"a": 1.0}}, path),
        lambda path: rh.write_qrels({"q": {"a": 1}}, path),
        lambda path: rh.Index.build(TEXTS, path),
    )
    for call in calls:
        with pytest.raises(rh.RankhouseError, match=r"give a path: a string or pathlib\.Path"):
            call(wrong)
    with pytest.raises(rh.RankhouseError, match=r"DataFrame \(a 0 1\); give a path"):
        rh.read_run(pd.DataFrame({"a": [1]}))


def test_no_run_at_all_cannot_be_fused():
    with pytest.raises(rh.RankhouseError, match=r"runs is of type list \(\[\]\); give a list of runs"):
        rh.fuse([])


def test_an_index_goes_to_another_process_as_its_path(index):
    for again in (pickle.loads(pickle.dumps(index)), copy.deepcopy(index)):
        assert type(again) is rh.Index
        assert again.fingerprint == index.fingerprint
    search = pickle.loads(pickle.dumps(index.search))  # as multiprocessing's map sends it
    assert search("locks") == index.search("locks")


@pytest.mark.parametrize("number", [0, -1])
def test_no_documents_are_not_asked_for(index, number):
    """0 was all of them."""
    for call in (index.search, index.retrieve):
        with pytest.raises(rh.RankhouseError, match=f"k={number}: ask for 1 document or more"):
            call("locks" if call == index.search else {"q": "locks"}, k=number)
    with pytest.raises(rh.RankhouseError, match=f"top={number}: ask for 1 document or more"):
        rh.explain("bm25", "locks", index=index, top=number)


def test_a_place_is_no_name_of_a_measure_or_system(index):
    run, qrels = {"q": {"1": 1.0}}, {"q": {"1": 1}}
    with pytest.raises(rh.RankhouseError, match='"0" cannot be read as a measure'):
        rh.evaluate(run, qrels)[0]
    assert rh.evaluate(run, qrels)[ir_measures.AP] == 1
    with pytest.raises(rh.RankhouseError, match="0 is no system; give its name, one of: a"):
        rh.compare({"a": run}, qrels)[0]


def test_an_id_that_no_document_has_is_answered_with_the_nearest(index):
    for wanted, said in (
        ("12", r'no document "12" among the 2.*did you mean "[12]"\?'),
        (3, "no document 3 .*ids are strings"),
    ):
        with pytest.raises(KeyError, match=said) as caught:
            index.documents[wanted]
        assert isinstance(caught.value, rh.RankhouseError)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_document_is_of_strings():
    for given in ((1, 2), ("1", None), ("1", "text", 3)):
        with pytest.raises(rh.RankhouseError, match="id, text and title are strings"):
            rh.Document(*given)


def test_a_system_is_not_compared_without_an_index():
    with pytest.raises(rh.RankhouseError, match='"ql" is a system and no file; give queries= and index='):
        rh.compare({"b": "ql"}, {"q": {"1": 1}})


def test_messages_name_arguments_and_leave_commands_as_they_are(index):
    with pytest.raises(
        rh.RankhouseError, match="rankhouse index --append, or replace it with overwrite=True"
    ):
        rh.Index.build(TEXTS, "i")

    @checked
    def work(minutes: float, index: str = "", overwrite: bool = False) -> None:
        raise rh.RankhouseError(
            'my--index/a "--index": --minutes 5, or --overwrite (rankhouse encode --index I); see --out'
        )

    with pytest.raises(rh.RankhouseError) as caught:
        work(5.0)
    assert str(caught.value) == (
        'my--index/a "--index": minutes=5, or overwrite=True (rankhouse encode --index I); see --out'
    )


def test_a_pair_that_is_judged_twice_is_refused():
    rows = [("q", "d", 1), ("q", "e", 1), ("q", "d", 0)]
    named = dict(zip(("qid", "docno", "label"), zip(*rows, strict=True), strict=True))
    for given in (rows, pd.DataFrame(named), [ir_measures.Qrel(*row) for row in rows]):
        with pytest.raises(DuplicateId, match='document "d" is judged twice for query "q"'):
            as_qrels(given)


class Record(NamedTuple):
    """As ir_datasets has them, which a package without a network cannot load."""

    doc_id: str
    text: str | None
    note: str = ""

    def default_text(self):
        return self.text


class Strange(NamedTuple):
    doc_id: str
    abstract: str


class Unreachable:
    def docs_iter(self):
        raise RuntimeError("all sources failed\nfor a while")

    def dataset_id(self):
        return "vaswani"


def test_records_of_ir_datasets_without_a_text_and_other_named_tuples():
    documents = list(as_documents([Record("1", "Pilots steer ships."), Record("2", None)]))
    assert [(one.id, one.text) for one in documents] == [("1", "Pilots steer ships."), ("2", "")]
    with pytest.raises(rh.RankhouseError, match="document 0 is of type Strange"):
        list(as_documents([Strange("1", "Pilots steer ships.")]))
    with pytest.raises(rh.RankhouseError, match="ir_datasets:vaswani: ir_datasets cannot fetch or read it"):
        list(as_documents(Unreachable()))


def test_an_index_is_looked_into_as_a_mapping_and_shown_as_a_table(tmp_path):
    index = rh.Index.build([{"id": "a<b", "text": "ships"}, {"id": "c", "text": "sea"}], tmp_path / "i")
    assert index["a<b"].text == "ships"
    assert "c" in index
    assert "d" not in index
    assert [document.id for document in index] == ["a<b", "c"]
    assert index._ipython_key_completions_() == ["a<b", "c"]
    with pytest.raises(KeyError, match='no document "d"'):
        index["d"]
    shown = index._repr_html_()
    assert "<td>2</td>" in shown.replace(' class="name" style="text-align:left"', "")
    assert "nothing" in shown
    (tmp_path / "i" / "vectors" / "mini<lm").mkdir(parents=True)
    assert "mini&lt;lm" in index._repr_html_()


def test_a_run_in_place_of_runs_and_a_folder_around_an_index_are_named(tmp_path):
    with pytest.raises(rh.RankhouseError, match="is of type Run .* give a mapping of names to runs"):
        rh.compare(rh.Run.of({"q": {"a": 1.0}}), {"q": {"a": 1}}, "AP")
    rh.Index.build([{"docid": 1, "text": "ships"}], tmp_path / "f" / "index")
    with pytest.raises(rh.RankhouseError, match="holds an index and is none; open .*index"):
        rh.Index.open(tmp_path / "f")
