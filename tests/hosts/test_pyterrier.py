"""PyTerrier: its own suite over the adapters, pipelines with the command line's numbers, bad frames."""

import atexit
import os
import tempfile
import zlib
from pathlib import Path
from shutil import rmtree

import pytest

pt = pytest.importorskip("pyterrier", reason="PyTerrier is not installed; make hosts")
pd = pytest.importorskip("pandas")

from host_material import EXPRESSIONS, QRELS, QUERIES, TEXTS, TITLES, Broken, Overlap  # noqa: E402

from rankhouse.api.index import Index  # noqa: E402
from rankhouse.core.errors import BadData, BadModel, DuplicateId, WrongUse  # noqa: E402
from rankhouse.core.run import Run  # noqa: E402
from rankhouse.hosts.adapters import OldHost  # noqa: E402
from rankhouse.hosts.pyterrier import BadFrame, Indexer, Reranker, Retriever, TextLoader  # noqa: E402
from rankhouse.systems.notation import system as as_system  # noqa: E402

pytestmark = [pytest.mark.outside, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TOPICS = pd.DataFrame(QUERIES.items(), columns=["qid", "query"])
LABELS = pd.DataFrame(
    [(q, d, g) for q, gs in QRELS.items() for d, g in gs.items()], columns=["qid", "docno", "label"]
)
HOME = Path(tempfile.mkdtemp(prefix="rankhouse-pyterrier-"))
atexit.register(rmtree, HOME, ignore_errors=True)
(HOME / "documentation").mkdir()
# Its schematics look classes up in an inventory of its documentation, here an empty one.
INVENTORY = HOME / "documentation" / "objects.inv"
INVENTORY.write_bytes(b"# \n" * 4 + zlib.compress(b""))
os.utime(INVENTORY, (0, 0))  # of a younger one it asks the network whether there is a newer
os.environ |= {"PYTERRIER_HOME": str(HOME), "PT_TEST_TRANSFORMER_REPORTS": "0"}
NOTES = Index.build([{"id": i, "text": text} for i, text in TEXTS.items()], HOME / "notes.index")

suite = pt.testing.transformer_test_class
TestRetriever = suite(lambda: Retriever("bm25 % 5", NOTES))
TestReranker = suite(lambda: Reranker(Overlap(), NOTES))
TestRerankerOfTexts = suite(lambda: Reranker(Overlap()))
TestTextLoader = suite(lambda: TextLoader(NOTES))
TestPipeline = suite(lambda: Retriever("bm25", NOTES) % 5 >> Reranker(Overlap(), NOTES))
for case in (TestRetriever, TestReranker, TestRerankerOfTexts, TestTextLoader, TestPipeline):
    case.pytestmark = pytestmark
del case  # a name that pytest would take for one more class of tests


def as_run(frame):
    """Check the ranks of a result, and return it as a run."""
    for _, rows in frame.groupby("qid"):
        assert rows["rank"].to_list() == list(range(len(rows)))
        assert rows["score"].is_monotonic_decreasing
    return Run.of(frame)


def same(frame, run):
    """Whether a result has the documents of a run in the same order, with the same scores to the bit."""
    assert as_run(frame).to_dict() == run.to_dict()
    order = frame.groupby("qid", sort=False)["docno"].agg(tuple).to_dict()
    return order == {query_id: run[query_id].doc_ids for query_id in run}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_retriever_ranks_as_the_command_line_does(expression, searched):
    expected = searched(expression)
    assert same(Retriever(expression, "notes.index").transform(TOPICS), expected)
    assert same(Retriever(as_system(expression), Index.open("notes.index"))(TOPICS), expected)


def test_a_cut_is_part_of_the_system_when_compiled(searched):
    pipeline = Retriever('bm25 >> "ranker"', "notes.index") % 2
    compiled = pipeline.compile()
    assert repr(compiled) == "Retriever('(bm25 >> \"ranker\") % 2', 'notes.index')"
    expected = searched('(bm25 >> "ranker") % 2')
    assert same(pipeline(TOPICS), expected)
    assert same(compiled(TOPICS), expected)
    assert isinstance(compiled, Retriever)
    looser = (Retriever("bm25", "notes.index") % 2000).compile()
    assert str(looser.system) == "bm25"


def test_a_retriever_and_a_reranker_become_one_system(searched, folder):
    pipeline = Retriever("bm25", "notes.index") % 5 >> Reranker("ranker", "notes.index")
    compiled = pipeline.compile()
    assert isinstance(compiled, Retriever)
    assert str(compiled.system) == 'bm25 % 5 >> "ranker"'
    expected = searched('bm25 % 5 >> "ranker"')
    assert same(pipeline(TOPICS), expected)
    assert same(compiled(TOPICS), expected)
    Index.build([{"id": "x", "text": "ships"}], "other.index")
    apart = (Retriever("bm25", "notes.index") >> Reranker("ranker", "other.index")).compile()
    assert not isinstance(apart, Retriever)


def test_a_reranker_ranks_as_the_command_line_does(reranked):
    first = Index.open("notes.index").retrieve(QUERIES, "bm25")
    frame = Retriever("bm25", "notes.index")(TOPICS)
    assert same(Reranker("ranker", "notes.index")(frame), reranked(first))
    cut = Reranker('open("ranker", depth=2, split="words(4)", pool="mean")', "notes.index")
    assert same(cut(frame), reranked(first, "--depth", 2, "--split", "words(4)", "--pool", "mean"))
    shuffled = frame.sample(frac=1, random_state=1)
    assert same(cut(shuffled).sort_values(["qid", "rank"]), Run.of(cut(frame)))


def test_texts_of_the_frame_give_the_same_numbers_as_those_of_the_index(reranked):
    first = Index.open("notes.index").retrieve(QUERIES, "bm25")
    with_texts = Retriever("bm25", "notes.index") >> TextLoader("notes.index")
    assert same((with_texts >> Reranker("ranker"))(TOPICS), reranked(first))
    loaded = (Retriever("bm25", "notes.index") >> pt.text.get_text(Retriever("bm25", "notes.index")))(TOPICS)
    assert dict(zip(loaded["docno"], loaded["text"], strict=True)).items() <= TEXTS.items()
    assert loaded["title"].to_list() == [TITLES.get(one, "") for one in loaded["docno"]]


def test_a_text_may_differ_from_query_to_query():
    rows = [
        ("q1", "steers", "d", "who steers"),
        ("q2", "lifts", "d", "it lifts"),
        ("q2", "lifts", "e", "none"),
    ]
    frame = pd.DataFrame(rows, columns=["qid", "query", "docno", "text"])
    assert as_run(Reranker(Overlap())(frame)).to_dict() == {"q1": {"d": 1.0}, "q2": {"d": 1.0, "e": 0.0}}


def test_other_columns_stay_and_ids_may_be_numbers(folder):
    topics = pd.DataFrame({"qid": [7, 8], "query": ["ships", "zebra"], "query_0": ["a", "b"]})
    found = Retriever("bm25", "notes.index")(topics)
    assert set(found["qid"]) == {7}
    assert set(found["query_0"]) == {"a"}
    again = Reranker(Overlap(), "notes.index")(found.assign(note="kept"))
    assert set(again["note"]) == {"kept"}
    assert len(again) == len(found)


def test_an_experiment_measures_what_the_command_line_measures(searched):
    from rankhouse.evaluation.measures import evaluate

    systems = ["bm25", 'bm25 % 5 >> "ranker"']
    names = ["AP", "nDCG@10", "RR@10"]
    first = Retriever("bm25", "notes.index")
    table = pt.Experiment(
        [first, first % 5 >> Reranker("ranker", "notes.index")],
        TOPICS,
        LABELS,
        eval_metrics=[pt.measures.AP, pt.measures.nDCG @ 10, pt.measures.RR @ 10],
        names=systems,
        precompute_prefix=True,
    )
    for place, expression in enumerate(systems):
        scores = evaluate(searched(expression), QRELS, names)
        assert table.iloc[place][names].to_list() == pytest.approx(
            [scores[name] for name in names], abs=1e-12
        )


def test_operators_of_the_host_combine_retrievers(folder):
    both = (Retriever("bm25", "notes.index") + 2 * Retriever("ql", "notes.index"))(TOPICS)
    assert set(both["qid"]) == set(QUERIES)
    features = (
        Retriever("bm25", "notes.index") % 3
        >> (Reranker(Overlap(), "notes.index") ** Reranker("ranker", "notes.index"))
    )(TOPICS)
    assert all(len(one) == 2 for one in features["features"])


def test_an_indexer_indexes_what_datasets_yield(tmp_path):
    rows = ({"docno": i, "text": text, "url": f"u/{i}"} for i, text in TEXTS.items())
    indexer = Indexer(tmp_path / "made.index")
    assert pt.inspect.indexer_inputs(indexer) == [["docno", "text"]]
    assert "Indexer" in pt.schematic.draw(indexer)
    index = indexer.index(rows)
    assert index.documents["d2"].extra == {"url": "u/d2"}
    expected = Retriever("bm25", NOTES)(TOPICS)
    assert Retriever("bm25", index)(TOPICS).equals(expected)
    upper = pt.apply.text(lambda row: row["text"].upper()) >> Indexer(
        tmp_path / "upper.index", analyzer="whitespace"
    )
    assert upper.index([{"docno": 3, "text": "ships"}]).documents["3"].text == "SHIPS"
    fields = Indexer(tmp_path / "fields.index", fields=["title", "abstract"])
    made = fields.index([{"docno": "a", "title": "Locks", "abstract": "lift"}])
    assert made.documents["a"].full_text == "Locks lift"


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame({"qid": ["q1"], "text": ["ships"]}), 'no column "query"; its columns are qid, text'),
        (pd.DataFrame({"query": ["ships"]}), 'no column "qid"'),
        (pd.DataFrame(), 'no column "qid"; its columns are none'),
        (pd.DataFrame({"qid": ["q1"], "query": ["x"], "docno": ["d1"]}), 'a column "docno"'),
    ],
)
def test_a_retriever_names_the_column_that_a_frame_lacks(frame, words):
    with pytest.raises(BadFrame) as error:
        Retriever("bm25", NOTES)(frame)
    assert words in str(error.value)
    assert isinstance(error.value, pt.validate.InputValidationError)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"qid": ["q1", "q1"]}, 'the column "qid" is "q1" in rows 0 and 1'),
        ({"query": ["ships", None]}, 'the column "query" of qid "q2" is nan'),
        ({"query": ["ships", 3]}, 'the column "query" of qid "q2" is 3, of type int'),
        ({"qid": ["q1", None]}, 'the column "qid" is nan in row 1'),
        ({"qid": ["q1", ""]}, "the column \"qid\" is '' in row 1"),
    ],
)
def test_a_faulty_query_is_named(change, words):
    frame = pd.DataFrame({"qid": ["q1", "q2"], "query": ["ships", "locks"]}).assign(**change)
    with pytest.raises(BadData) as error:
        Retriever("bm25", NOTES)(frame)
    assert words in str(error.value)


@pytest.mark.parametrize("given", [None, {"qid": ["q1"]}, [{"qid": "q1"}]])
def test_what_is_no_frame_is_named(folder, given):
    for transformer in (Retriever("bm25", NOTES), Reranker(Overlap()), TextLoader(NOTES)):
        with pytest.raises(BadFrame, match=f"takes a frame of .*; this is of type {type(given).__name__}"):
            transformer.transform(given)


def test_two_columns_of_one_name_are_named(folder):
    frame = pd.DataFrame([["q1", "ships", "d1", "d2"]], columns=["qid", "query", "docno", "docno"])
    for transformer in (Reranker(Overlap(), NOTES), TextLoader(NOTES)):
        with pytest.raises(BadFrame, match='this one has two columns "docno"'):
            transformer.transform(frame)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"docno": ["d1", "d1"]}, 'the column "docno" of qid "q1" is "d1" in rows 0 and 1'),
        ({"score": [1.0, float("nan")]}, 'the column "score" is nan in row 1'),
        ({"score": [1.0, "high"]}, "the column \"score\" is 'high' in row 1"),
        ({"score": [1.0, 10**400]}, "in row 1; scores are numbers of 32 bits"),
        ({"score": [1.0, 1e308]}, 'the column "score" is 1e+308 in row 1; scores are numbers of 32 bits'),
        ({"score": pd.Series([1.0, None], dtype=object)}, 'the column "score" is nan in row 1'),
        ({"docno": ["d1", None]}, 'the column "docno" is nan in row 1'),
        (
            {"docno": pd.Series(["d1", "\ud800"], dtype=object)},
            """the column "docno" is '\\ud800' in row 1""",
        ),
        ({"docno": ["d1", ["d2"]]}, """the column "docno" is ['d2'] in row 1"""),
        ({"query": ["ships", "locks"]}, 'the column "query" has several texts for qid "q1"'),
        ({"query": ["ships", {}]}, 'the column "query" of qid "q1" is {}, of type dict'),
        ({"text": ["a", None]}, 'the column "text" of docno "d2", qid "q1", is nan'),
    ],
)
def test_a_faulty_candidate_is_named(change, words):
    frame = pd.DataFrame(
        {
            "qid": ["q1", "q1"],
            "query": ["ships", "ships"],
            "docno": ["d1", "d2"],
            "score": [2.0, 1.0],
            "text": ["a", "b"],
        }
    )
    with pytest.raises(BadData) as error:
        Reranker(Overlap())(frame.assign(**change))
    assert words in str(error.value)
    with pytest.raises(BadFrame, match='no column "text"'):
        Reranker(Overlap())(frame.drop(columns="text"))


def test_scores_of_a_ranker_that_are_no_numbers_are_refused():
    with pytest.raises(BadModel, match="not a number"):
        (Retriever("bm25", NOTES) >> Reranker(Broken(), NOTES))(TOPICS)
    with pytest.raises(WrongUse, match="stored=True"):
        Reranker('open("DIR", stored=True)')


def test_faulty_documents_of_an_indexer_are_named(tmp_path):
    with pytest.raises(BadData, match='document 1 has no "text"; it has docno, body'):
        Indexer(tmp_path / "a").index([{"docno": "a", "text": "x"}, {"docno": "b", "body": "x"}])
    with pytest.raises(BadData, match='the "text" of document 0, docno "a", is None'):
        Indexer(tmp_path / "b").index([{"docno": "a", "text": None}])
    with pytest.raises(DuplicateId, match='"a"'):
        Indexer(tmp_path / "c").index([{"docno": "a", "text": "x"}, {"docno": "a", "text": "y"}])
    with pytest.raises(BadData, match='column "docno": there is no document "zz"'):
        TextLoader(NOTES)(pd.DataFrame({"docno": ["zz"]}))


def test_an_old_host_is_named_with_the_version_that_is_needed(old_host):
    with pytest.raises(
        OldHost, match=r"rankhouse\.hosts\.pyterrier needs pyterrier 1\.1 or newer, and pyterrier 0\.13\.0"
    ):
        old_host("pyterrier", "0.13.0")


def test_no_java_is_started():
    assert not pt.java.started()
