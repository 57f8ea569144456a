"""Lines of the frameworks' own documentation, read from the installed packages, run with another import only.

A block below is what stands between two lines of a README or a docstring, both included. What its
retriever, reranker or model is, the test says; everything else is as the framework's authors wrote it.
"""

import importlib
import inspect
import re
import shutil
from importlib.metadata import metadata
from textwrap import dedent
from types import SimpleNamespace

import pytest
from host_material import QRELS, QUERIES, TEXTS

import rankhouse as rh

pytestmark = [
    pytest.mark.outside,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # BEIR leaves files open
]


def readme(package):
    """A package's README, its code alone."""
    blocks = re.findall(r"```python\n(.*?)```", metadata(package)["Description"] or "", re.DOTALL)
    return "\n".join(blocks)


def source(module):
    """The file of a module, whose docstrings are quoted."""
    return inspect.getsource(importlib.import_module(module))


def block(text, first, last=""):
    """The lines from that which begins with ``first`` to the next that begins with ``last``."""
    lines = text.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.strip().startswith(first))
    end = next(n for n in range(begin, len(lines)) if lines[n].strip().startswith(last or first))
    return dedent("\n".join(lines[begin : end + 1]))


def executed(code, names):
    """Run lines; return how many there were, without comments and empty ones."""
    exec(compile(code, "their documentation", "exec"), names)
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in code.splitlines())


@pytest.fixture
def sentence_transformers(folder, bert):
    from rankhouse.hosts.sentence_transformers import CrossEncoder

    (folder / "cross-encoder").mkdir()
    shutil.copytree(
        bert("BertForSequenceClassification", num_labels=1),
        folder / "cross-encoder" / "ms-marco-MiniLM-L6-v2",
    )
    text, names = readme("sentence-transformers"), {"CrossEncoder": CrossEncoder}
    count = executed(block(text, "model = CrossEncoder("), names)
    count += executed(block(text, 'query = "How many', "print(scores)"), names)
    count += executed(block(text, "ranks = model.rank(", 'print(f"- #'), names)
    assert len(names["scores"]) == len(names["ranks"]) == 3
    return count


@pytest.fixture
def beir(folder):
    evaluation = pytest.importorskip("beir.retrieval.evaluation")
    from beir.datasets.data_loader import GenericDataLoader

    from rankhouse.hosts.beir import Search

    tiny = __file__.replace("hosts/test_lines_of_others.py", "tiny/beir")
    names = {"GenericDataLoader": GenericDataLoader, "EvaluateRetrieval": evaluation.EvaluateRetrieval}
    names |= {"data_path": tiny, "model": Search("bm25")}
    text = readme("beir")
    count = executed(block(text, "corpus, queries, qrels = Generic"), names)
    count += executed(block(text, "retriever = EvaluateRetrieval(", "mrr ="), names)
    own = rh.evaluate(rh.Run.of(names["results"]), tiny, "nDCG@10").mean("nDCG@10")
    assert names["ndcg"]["NDCG@10"] == pytest.approx(own, abs=1e-5)
    return count


@pytest.fixture
def mteb(folder, monkeypatch):
    framework = pytest.importorskip("mteb")
    from test_mteb import Notes

    from rankhouse.hosts.mteb import SearchModel

    monkeypatch.setenv("MTEB_CACHE", str(folder / "cache"))
    names = {"mteb": framework, "model": SearchModel("bm25"), "tasks": [Notes()]}
    count = executed(block(readme("mteb"), "results = mteb.evaluate("), names)
    assert names["results"].model_name == "rankhouse/bm25"
    return count


@pytest.fixture
def pyterrier(folder):
    pt = pytest.importorskip("pyterrier")
    import pandas as pd

    from rankhouse.hosts.pyterrier import Reranker, Retriever

    bm25, ql = Retriever("bm25", "notes.index"), Retriever("ql", "notes.index")
    topics = pd.DataFrame(QUERIES.items(), columns=["qid", "query"])
    rows = [(q, d, g) for q, grades in QRELS.items() for d, g in grades.items()]
    qrels = pd.DataFrame(rows, columns=["qid", "docno", "label"])
    dataset = SimpleNamespace(get_topics=lambda: topics, get_qrels=lambda: qrels)
    pl2f = Reranker("ranker", "notes.index")
    names = {"pt": pt, "pd": pd, "bm25": bm25, "monot5": bm25 >> pl2f, "dataset": dataset}
    names |= {"br1": bm25, "br2": ql, "pl2": bm25, "tuned_pl2": ql, "all_topics": topics, "qrels": qrels}
    names |= {"cands": bm25, "pl2f": pl2f, "bm25f": pl2f}
    transformer = source("pyterrier.transformer")
    count = executed(block(readme("pyterrier"), "monot5.search("), names)
    count += executed(block(transformer, 'res = bm25.search("example', "res = bm25.transform("), names)
    count += executed(block(source("pyterrier._ops"), "pipe = cands >> (pl2f"), names)
    count += executed(block(source("pyterrier.datasets._core"), "pt.Experiment([br1, br2]"), names)
    count += executed(block(source("pyterrier._evaluation._grid"), "pt.Experiment([pl2, tuned"), names)
    assert len(names["pipe"](topics)["features"][0]) == 2
    return count


@pytest.fixture
def langchain(folder):
    pytest.importorskip("langchain_core")
    from rankhouse.hosts.langchain import RankhouseRetriever

    names = {"retriever": RankhouseRetriever(system="bm25", index="notes.index")}
    return executed(block(source("langchain_core.retrievers"), "retriever.invoke("), names)


@pytest.fixture
def haystack(folder):
    framework = pytest.importorskip("haystack")
    from haystack.components.builders import ChatPromptBuilder
    from haystack.dataclasses import ChatMessage

    from rankhouse.hosts.haystack import RankhouseRetriever

    @framework.component
    class Echo:
        """Stands for the language model, which a test cannot ask."""

        @framework.component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]) -> dict[str, list[ChatMessage]]:
            return {"replies": messages}

    says = "{{ question }} {% for doc in documents %}{{ doc.content }} {% endfor %}"
    names = {
        "Pipeline": framework.Pipeline,
        "retriever": RankhouseRetriever("bm25", "notes.index"),
        "llm": Echo(),
    }
    names["prompt_builder"] = ChatPromptBuilder(
        template=[ChatMessage.from_user(says)], required_variables=["question", "documents"]
    )
    text = source("haystack.core.pipeline.pipeline")
    text = text.replace('"Who lives in Paris?"', f'"{QUERIES["q1"]}"')  # a question to these documents
    count = executed(block(text, "rag_pipeline = Pipeline()", 'print(results["llm"]'), names)
    assert TEXTS["d2"] in names["results"]["llm"]["replies"][0].text
    return count


def test_twenty_lines_of_their_documentation_run(request):
    """Whatever is installed runs; where everything is, at least twenty lines in all."""
    hosts = ("sentence_transformers", "beir", "mteb", "pyterrier", "langchain", "haystack")
    lines = {name: request.getfixturevalue(name) for name in hosts}
    print(lines)
    assert all(lines.values())
    assert sum(lines.values()) >= 20
