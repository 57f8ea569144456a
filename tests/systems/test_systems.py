"""Systems rank as the commands do for the same pipeline, byte for byte; what they share is run once."""

import numpy as np
import pytest

import rankhouse as rh
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.systems import execution
from rankhouse.systems.execution import Execution, TextsAlone
from rankhouse.systems.on_record import OnRecord
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.short_forms import short_form
from rankhouse.systems.stage import as_stage
from rankhouse.systems.system import RerankedSystem

CPU = ("--precision", "fp32", "--device", "cpu", "--threads", "1")


@pytest.fixture
def written(world, run, tmp_path):
    """Carry out a command of the pipeline in the world; the bytes of the run that it writes."""

    def call(command, *options, out="o.run"):
        (tmp_path / out).unlink(missing_ok=True)
        given = ("--queries", world.folder / "queries.tsv", "--index", world.folder / "my.index", *CPU)
        done = run(command, *options, *given, "--out", out)
        assert done.returncode == 0, done.stderr
        return (tmp_path / out).read_bytes()

    return call


@pytest.mark.slow
def test_a_system_is_the_pipeline_of_commands_byte_for_byte(world, run, written, tmp_path):
    """Every pipeline of today's options and commands, and the system that it is."""
    dense, cross, tk = (
        f"dense({world.rankers['biencoder']})",
        world.rankers["crossencoder"],
        world.rankers["tk"],
    )
    lexical = ("--precision", "auto", "--device", "auto")
    searches = {
        ("--model", "bm25", *lexical): "bm25",
        ("--model", "bm25(k1=0.9, b=0.4)", "--feedback", "rm3(terms=5)", "-k", 20, *lexical): (
            "bm25(k1=0.9, b=0.4, feedback=rm3(terms=5)) % 20"
        ),
        ("--model", "bm25", "--model", "ql", *lexical): 'linear(bm25, ql, norm="z-score") % 1000',
        ("--model", "bm25", "--model", "ql", "-k", 5, *lexical): 'linear(bm25, ql, norm="z-score") % 5',
        (
            "--model",
            "bm25",
            "--model",
            "ql",
            "-k",
            5,
            "--fusion",
            "rrf",
            *lexical,
        ): "rrf(bm25 % 5, ql % 5) % 5",
        ("--model", "bm25", "--model", dense): f"(0.3 * bm25 + 0.7 * {dense}) % 1000",
        ("--model", "bm25", "--model", dense, "--fusion", "rrf(k=10)"): f"rrf(bm25, {dense}, k=10) % 1000",
        ("--model", "bm25", "--model", dense, "--fusion", 'linear("z-score")'): (
            f"(0.5 * bm25 + 0.5 * {dense}) % 1000"
        ),
        ("--model", dense, "--model", "ql", "--model", "jm", "--fusion", "combmnz"): (
            f"combmnz({dense}, ql, jm) % 1000"
        ),
    }
    for options, text in searches.items():
        devices = lexical if lexical[1] in options else CPU
        given = ("--queries", world.folder / "queries.tsv", "--index", world.folder / "my.index", *devices)
        short = [one for one in options if one not in lexical]
        for name, what in (("a.run", short), ("b.run", ["--system", text])):
            done = run("search", *what, *given, "--out", name)
            assert done.returncode == 0, done.stderr
        first = (tmp_path / "a.run").read_bytes()
        assert first == (tmp_path / "b.run").read_bytes(), text
        assert first.count(b"\n") > 10, text
    (tmp_path / "first.run").write_bytes(written("search", "--system", f"rrf(bm25, {dense}) % 30"))
    reranks = {
        ("--ranker", cross): cross,
        ("--ranker", cross, "--depth", 7): f"{cross[:-1]}, depth=7)",
        ("--ranker", cross, "--depth", 7, "--tail", "drop"): f"{cross[:-1]}, depth=7, tail='drop')",
        ("--ranker", cross, "--split", "words(9)", "--pool", "top(2)"): (
            f"{cross[:-1]}, split=words(9), pool=top(2))"
        ),
        ("--ranker", tk): repr(tk),
        ("--ranker", tk, "--split", "sentences(2, 1)"): f"open({tk!r}, split=sentences(2, 1))",
    }
    for options, ranker in reranks.items():
        by_command = written("rerank", "--run", "first.run", *options, "--tag", "t")
        text = f"rrf(bm25, {dense}) % 30 >> {ranker}"
        assert written("search", "--system", text, "--tag", "t") == by_command, text


def test_a_sum_is_linear_with_z_scores(world):
    queries, index = world.queries, world.index
    runs = [rh.system(one).run(queries, index) for one in ("bm25", "ql", "jm(lambda=0.2)")]
    by_command = rh.fuse(runs, 'linear("z-score")', weights=[1, 0.7, 2])
    assert (
        rh.system("bm25 + 0.7 * ql + 2 * jm(lambda=0.2)").run(queries, index).to_dict()
        == by_command.to_dict()
    )


class Shared:
    """Words in common, counted."""

    fingerprint, scale = "shared words", "score"

    def __init__(self):
        self.asked = 0

    def score(self, pairs):
        self.asked += len(pairs)
        words = [(set(q.text.split()), set(p.text.lower().split())) for q, p in pairs]
        return np.array([len(q & p) for q, p in words], np.float32)


@pytest.fixture
def small(tmp_path):
    """Documents about ships, their number in their id; no torch."""
    texts = [f"ships of port{n % 3} carry grain {'sails ' * n}" for n in range(12)]
    return rh.Index.build(
        [rh.Document(f"d{n}", text) for n, text in enumerate(texts)], tmp_path / "small.index"
    )


QUERIES = {"q1": "ships port1", "q2": "grain sails"}


def test_any_ranker_object_reads_everything_that_comes_in(small):
    ranker = Shared()
    first = rh.system("bm25") % 5
    system = first >> ranker
    found = system.run(QUERIES, small)
    assert ranker.asked == 10
    assert found.to_dict() == rh.rerank(Shared(), first.run(QUERIES, small), QUERIES, small).to_dict()
    assert system.rank("ships port1", small).doc_ids == found["q1"].doc_ids
    shallow = first.rerank(ranker, depth=2, tail="drop").run(QUERIES, small)
    assert {len(shallow[q].doc_ids) for q in QUERIES} == {2}
    both = (first + 0.5 * (first >> ranker)) % 3
    assert len(both.rank("grain sails", small).doc_ids) == 3


def test_search_gives_titles_and_snippets(small):
    found = rh.system("bm25 + ql").search("port1 grain", small, k=2)
    assert len(found.hits) == 2
    assert "port1" in found.hits[0].text
    assert (
        rh.system("bm25").search("port1 grain", small.path, k=2).doc_ids
        == small.search("port1 grain", k=2).doc_ids
    )


def test_a_cut_keeps_the_best_and_a_first_stage_finds_as_many_as_it_says(tmp_path):
    many = rh.Index.build(
        [rh.Document(f"d{n}", f"ships {'sail ' * (n % 90)}") for n in range(1_500)], tmp_path / "m"
    )
    counts = {
        "bm25": 1000,
        "bm25 % 1400": 1400,
        "bm25 % 7": 7,
        "bm25 % 1400 % 9": 9,
    }
    for text, count in counts.items():
        assert len(rh.system(text).rank("ships", many).doc_ids) == count, text
    best = rh.system("bm25 % 1400").rank("ships", many)
    for k in (1, 10, 1000):
        shorter = (rh.system("bm25") % k).rank("ships", many)
        assert shorter.doc_ids == best.doc_ids[:k]
        assert shorter.scores.tobytes() == best.scores[:k].tobytes()


def test_shared_stages_run_once(small, monkeypatch):
    calls = []
    retrieve = execution.retrieve

    def counted(index, queries, options, show):
        calls.append((options.model, options.k))
        return retrieve(index, queries, options, show)

    monkeypatch.setattr(execution, "retrieve", counted)
    ranker = Shared()
    first = rh.system("bm25") % 4
    systems = {
        "first": first,
        "read": first >> ranker,
        "again": (first >> ranker) % 2,
        "all": rh.system("bm25"),
        "both": rh.system("bm25 % 2 + ql"),
    }
    alone = {name: system.run(QUERIES, small).to_dict() for name, system in systems.items()}
    calls.clear()
    ranker.asked = 0
    seen = []
    work = Execution(small, [rh.Query(*one) for one in QUERIES.items()], progress=lambda *at: seen.append(at))
    found = work.run_all(systems)
    assert {name: run.to_dict() for name, run in found.items()} == alone
    assert sorted(calls) == [("bm25", 1000), ("ql", 1000)]
    assert ranker.asked == 8
    done, totals = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    assert totals[0] == done[-1] == 2 * 2 + 8  # queries searched for by two stages, documents read by one
    assert all(at <= whole for at, whole in seen)


def test_all_that_a_fusion_gives_is_expected_to_be_read(small):
    seen, system = [], (rh.system("bm25") % 1 + rh.system("ql") % 3) >> Shared()
    queries = [rh.Query(*one) for one in QUERIES.items()]
    Execution(small, queries, progress=lambda *at: seen.append(at)).run(system)
    shares = [done / whole for done, whole in seen]
    assert shares == sorted(shares)


def test_a_weight_alone_ranks_nothing(small):
    with pytest.raises(rh.RankhouseError, match="add another to it"):
        rh.system("0.5 * bm25").run(QUERIES, small)
    with pytest.raises(rh.RankhouseError, match="add another to it"):
        0.5 * rh.system("bm25") >> Shared()


def test_short_forms_are_systems():
    assert short_form(("bm25",)) == rh.system("bm25")
    assert short_form(("bm25", "ql"), "rm3", "rrf", k=5) == rh.system(
        "rrf(bm25(feedback=rm3)%5,ql(feedback=rm3)%5)%5"
    )
    assert short_form(("bm25", "dense(a/b)"), fusion="combsum") == rh.system(
        'combsum(bm25, dense("a/b")) % 1000'
    )


def test_the_usual_fusion_weighs_words_and_vectors_and_needs_all_their_scores():
    both = short_form(("bm25", "dense(a/b)"), k=5)
    assert both == rh.system('(0.3 * bm25 + 0.7 * dense("a/b")) % 5')
    three = short_form(("bm25", "ql", "dense(a/b)"))
    assert three == rh.system('(0.15 * bm25 + 0.15 * ql + 0.7 * dense("a/b")) % 1000')
    assert short_form(("bm25", "ql"), k=5) == rh.system('linear(bm25, ql, norm="z-score") % 5')
    weighted = short_form(("bm25", "dense(a/b)"), weights=(2, 1))
    assert weighted == rh.system('(2 * bm25 + dense("a/b")) % 1000')


def test_the_command_takes_a_system_in_place_of_its_short_forms(files, run):
    search = ("search", "my.index", "pilots steer")
    assert "Pilots" in run(*search).stdout
    assert run(*search).stdout == run("search", "--index", "my.index", "--query", "pilots steer").stdout
    assert "Pilots" in run(*search, "--system", "bm25 % 3 + 0.5 * ql").stdout
    for options, words in (
        (("--system", "bm25", "--model", "ql"), "--system says what ranks"),
        (("--system", "bm26"), 'did you mean "bm25"'),
        (("--system", "bm25", "--device", "cuda"), "would change nothing here"),
    ):
        done = run(*search, *options)
        assert done.returncode == 2
        assert words in " ".join(done.stderr.split()), done.stderr
    assert "rankhouse search INDEX" in run("search").stderr
    assert run("search", "my.index", "--query", "x", "--model", "ql", "--system", "ql").returncode == 2


def test_precision_of_a_stage(world):
    cross = world.rankers["crossencoder"]
    system = rh.system(f"bm25 % 3 >> {cross[:-1]}, precision='fp32')")
    work = Execution(world.index, world.queries[:1], ComputeOptions(device="cpu", threads=1))
    work.run(system)
    assert [one.compute.precision for one in work.rankers.values()] == ["fp32"]


def test_texts_in_no_index_are_read_and_not_searched():
    texts = TextsAlone({"a": Document("a", "ships"), "b": Document("b", "ships and ships")})

    class Longest:
        def score(self, pairs):
            return np.array([len(pair.passage.text) for pair in pairs], np.float32)

    work, first = Execution(texts, [Query("q", "ships")]), OnRecord(Run.of({"q": {"a": 2.0, "b": 1.0}}), "it")
    assert work.run(RerankedSystem(first, as_stage(Longest())))["q"].doc_ids == ("b", "a")
    with pytest.raises(WrongUse, match="a first stage needs an index"):
        work.run(rh.system("bm25"))
