"""What the service answers is what rankhouse search, rerank and fuse write, to the bit."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from rankhouse.io.trec import read_run
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.shapes import SearchBody
from rankhouse.systems.notation import system


@pytest.fixture
def offline(world, command, tmp_path):
    """Search, rerank and fuse by command."""

    def searched(out, *options):
        command(
            "search",
            "--index",
            world.index,
            "--queries",
            world.folder / "queries.tsv",
            "--out",
            out,
            *options,
        )
        return out

    def reranked(run, out, ranker, *options):
        command("rerank", "--run", run, "--queries", world.folder / "queries.tsv", "--index", world.index,
                "--ranker", world.specs[ranker], "--out", out, *world.cpu, *options)  # fmt: skip
        return out

    def fused(out, *runs, method="rrf"):
        command("fuse", *runs, "--method", method, "--out", out)
        return out

    class Offline:
        search, rerank, fuse = staticmethod(searched), staticmethod(reranked), staticmethod(fused)

    return Offline


def dense_of(world):
    return f"dense({world.specs['bi']!r})"


def assert_same(service, world, system, path):
    """Every query of a run file has the answer that the service gives."""
    run, k = read_run(path), 1000
    for query in world.queries:
        wanted = [] if query.id not in run else [(hit.doc_id, hit.score) for hit in run[query.id]]
        own = {"system": system} if isinstance(system, str) else system
        request = SearchBody(query=query.text, k=k, snippets=False, **own)
        answer = search(service.catalogue, request)
        assert [(hit.doc_id, hit.score) for hit in answer.hits] == [(d, float(s)) for d, s in wanted]
        assert answer.degraded == ""


DENSE = ("--model", 'dense("{bi}")')


def test_first_stages(service, world, offline):
    assert_same(service, world, "bm25", offline.search("a.run"))
    assert_same(service, world, "bm25+rm3", offline.search("b.run", "--feedback", "rm3"))
    assert_same(service, world, "ql", offline.search("c.run", "--model", "ql"))
    own = {"models": ["jm(lambda=0.1)"]}
    assert_same(service, world, own, offline.search("d.run", "--model", "jm(lambda=0.1)", "-k", 1000))


def test_vectors_and_their_fusion(service, world, offline):
    dense = offline.search("dense.run", "--model", dense_of(world), "--precision", "fp32", "--device", "cpu")
    assert_same(service, world, "dense", dense)
    options = ("--model", "bm25", "--model", dense_of(world), "--precision", "fp32", "--device", "cpu")
    assert_same(service, world, "hybrid", offline.search("hybrid.run", *options))


@pytest.mark.quick("bi", "cross")
@pytest.mark.parametrize("ranker", ["cross", "tk", "bi"])
def test_rankers_over_bm25_and_fused_with_it(service, world, offline, ranker):
    bm25, split = offline.search("bm25.run"), str(service.catalogue.ranker(ranker).split)
    read = offline.rerank(bm25, "read.run", ranker, "--depth", 100, "--split", split)
    if ranker != "bi":  # which has vectors here, so that its own systems search by them
        alone, both = service.catalogue.system(ranker), service.catalogue.system(f"{ranker}+bm25")
        read_by = f'open("{ranker}", depth=100)'
        assert alone.system == system(f"bm25 >> {read_by}")
        assert both.system == system(f"rrf(bm25, bm25 >> {read_by})")
        reads = f"{ranker} reads the first 100 of bm25"
        assert (alone.description, both.description) == (reads, f"{reads}; both joined by rrf")
    assert_same(service, world, {"ranker": ranker}, read)
    both = {"models": ["bm25"], "ranker": ranker, "fusion": "rrf"}
    assert_same(service, world, both, offline.fuse("both.run", bm25, read))


def test_a_ranker_reads_the_share_most_like_the_question(service, world, offline):
    split = str(service.catalogue.ranker("cross").split)
    options = ("--depth", 12, "--see", 0.5, "--split", split)
    read = offline.rerank(offline.search("bm25.run"), "read.run", "cross", *options)
    assert_same(service, world, f'bm25 >> see(keep=0.5) >> open("cross", depth=12, split={split})', read)


def test_a_system_of_ones_own(service, world, offline):
    found = offline.search("two.run", "--model", "bm25", "--model", "ql")
    read = offline.rerank(found, "read.run", "cross", "--depth", 12, "--split", "words(15)", "--pool", "mean")
    own = {"models": ["bm25", "ql"], "ranker": "cross", "depth": 12, "split": "words(15)", "pool": "mean"}
    assert_same(service, world, own, read)


@pytest.mark.slow
def test_many_at_once_get_the_same_answers(service, world, offline):
    """Requests share batches, views and caches; none of that is to be seen in a score."""
    systems = ["bm25", "bm25+rm3", "dense", "hybrid", "cross", "tk", "cross+bm25"]
    asked = [
        SearchBody(query=query.text, system=system, k=60) for query in world.queries for system in systems
    ]
    alone = [search(service.catalogue, request).hits for request in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda request: search(service.catalogue, request).hits, asked * 3))
    assert together == alone * 3
