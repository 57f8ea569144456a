"""LangChain's own suite over the retriever, its compression over the compressor, its bad documents."""

import tempfile
from pathlib import Path

import pytest

suites = pytest.importorskip(
    "langchain_tests.integration_tests", reason="langchain-tests is not installed; make hosts"
)

from host_material import EXPRESSIONS, QUERIES, TEXTS, TITLES, Broken, Overlap  # noqa: E402
from langchain_core.documents import Document  # noqa: E402

from rankhouse.api.index import Index  # noqa: E402
from rankhouse.core.errors import BadData, BadModel, DuplicateId, WrongUse  # noqa: E402
from rankhouse.core.run import Run  # noqa: E402
from rankhouse.hosts.adapters import OldHost  # noqa: E402
from rankhouse.hosts.langchain import RankhouseCompressor, RankhouseRetriever  # noqa: E402

pytestmark = [pytest.mark.outside, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

HERE = Path(tempfile.mkdtemp(prefix="rankhouse-langchain-"))


class TestSuite(suites.RetrieversIntegrationTests):
    """The suite, unmodified."""

    @pytest.fixture(autouse=True, scope="class")
    def notes(self):
        if not (HERE / "notes.index").exists():
            Index.build([{"id": i, "text": text} for i, text in TEXTS.items()], HERE / "notes.index")

    @property
    def retriever_constructor(self):
        return RankhouseRetriever

    @property
    def retriever_constructor_params(self):
        return {"system": "bm25", "index": HERE / "notes.index"}

    @property
    def retriever_query_example(self):
        return "ships in the harbour"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_retriever_ranks_as_the_command_line_does(expression, searched):
    expected = searched(expression)
    retriever = RankhouseRetriever(system=expression, index="notes.index", k=20)
    for query_id, found in zip(QUERIES, retriever.batch(list(QUERIES.values())), strict=True):
        ranking = expected[query_id]
        assert [(one.id, one.metadata["score"]) for one in found] == list(ranking.to_dict().items())
        assert [one.page_content for one in found] == [
            f"{TITLES[i]} {TEXTS[i]}" if i in TITLES else TEXTS[i] for i in ranking.doc_ids
        ]


def test_compression_ranks_as_the_command_line_does(searched):
    classic = pytest.importorskip("langchain_classic.retrievers", reason="langchain-classic is not installed")
    pipeline = classic.ContextualCompressionRetriever(
        base_compressor=RankhouseCompressor(ranker="ranker"),
        base_retriever=RankhouseRetriever(system="bm25", index="notes.index", k=5),
    )
    expected = searched('bm25 % 5 >> "ranker"')
    for query_id, text in QUERIES.items():
        found = [(one.id, one.metadata["relevance_score"]) for one in pipeline.invoke(text)]
        assert found == list(expected[query_id].to_dict().items())


async def test_a_chain_runs_at_once_and_in_turns(folder):
    compressor = RankhouseCompressor(ranker="ranker", top_n=2)
    retriever = RankhouseRetriever(system="bm25", index="notes.index")
    found = await retriever.ainvoke(QUERIES["q1"])
    assert found == retriever.invoke(QUERIES["q1"])
    best = await compressor.acompress_documents(found, QUERIES["q1"])
    assert best == compressor.compress_documents(found, QUERIES["q1"])
    assert len(best) == 2
    assert "relevance_score" not in found[0].metadata


def test_documents_without_ids_keep_their_order_where_scores_are_equal():
    documents = [Document(page_content=text) for text in ("b c", "a b", "a c", "a d")]
    found = RankhouseCompressor(ranker=Overlap()).compress_documents(documents, "a")
    assert [one.page_content for one in found] == ["a b", "a c", "a d", "b c"]
    assert RankhouseCompressor(ranker=Overlap()).compress_documents([], "a") == []


def test_equal_scores_are_ordered_as_in_every_run():
    documents = [Document(id=i, page_content="same") for i in ("d1", "d10", "d2")]
    found = RankhouseCompressor(ranker=Overlap()).compress_documents(documents, "same")
    assert [one.id for one in found] == list(Run.of({"q": {"d1": 1.0, "d10": 1.0, "d2": 1.0}})["q"].doc_ids)


def test_faults_are_named(folder):
    compressor = RankhouseCompressor(ranker=Overlap())
    with pytest.raises(DuplicateId, match='the "id" of the documents is "a" in rows 0 and 1'):
        compressor.compress_documents([Document(id="a", page_content="x")] * 2, "x")
    with pytest.raises(BadModel, match="not a number"):
        RankhouseCompressor(ranker=Broken()).compress_documents([Document(page_content="x")], "x")
    with pytest.raises(WrongUse, match="0 documents are asked for"):
        RankhouseCompressor(ranker=Overlap(), top_n=0).compress_documents([Document(page_content="x")], "x")
    with pytest.raises(WrongUse, match="-1 documents are asked for"):
        RankhouseRetriever(system="bm25", index="notes.index", k=-1).invoke("ships")
    with pytest.raises(BadData, match="the query is blank"):
        compressor.compress_documents([Document(page_content="x")], " ")
    with pytest.raises(BadData, match="the query is 3"):
        compressor.compress_documents([Document(page_content="x")], 3)


def test_an_old_host_is_named_with_the_version_that_is_needed(old_host):
    with pytest.raises(OldHost, match=r"needs langchain-core 1\.4 or newer, and langchain-core 0\.3\.80"):
        old_host("langchain", "0.3.80")
