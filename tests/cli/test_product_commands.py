"""Commands for product matching: parts, search --own, pairs, versus."""

import gzip
import json

import pytest

THINGS = [
    "red lamp",
    "blue lamp",
    "steel kettle",
    "oak desk",
    "garden hose",
    "desk fan",
    "door bell",
    "wall clock",
]


@pytest.fixture
def catalogue(tmp_path):
    """Two shops: entry i and entry 20 + i are the same thing; the first eight are also queries."""
    rows = [{"id": str(i), "title": thing, "text": "not read"} for i, thing in enumerate(THINGS)]
    rows += [{"id": str(20 + i), "title": f"{thing} new", "text": ""} for i, thing in enumerate(THINGS)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"id": str(i), "text": thing} for i, thing in enumerate(THINGS)] + [{"id": "99", "text": "x y"}]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    own = "".join(f"{i} 0 {i} 1\n{i} 0 {20 + i} 1\n" for i in range(8))
    (tmp_path / "qrels.txt").write_text(own)
    return tmp_path


def call_parts(run, *more):
    given = ("--corpus", "corpus.jsonl", "--queries", "queries.jsonl", "--qrels", "qrels.txt")
    return run("group-split", *given, "--out", "parts", *more)


def test_parts_hold_every_query_once_and_an_entry_is_no_match_of_itself(catalogue, run):
    done = call_parts(run, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["entries"], said["own"]) == (16, 8)
    assert sum(part["queries"] for part in said["parts"]) == 9
    assert [part["matches"] for part in said["parts"]] == [2, 2, 2, 2]
    seen = []
    for name in ("first", "second", "third", "test"):
        lines = (catalogue / f"parts/{name}.queries.jsonl").read_text().splitlines()
        ids = [json.loads(line)["id"] for line in lines]
        judged = dict(
            line.split()[::2] for line in (catalogue / f"parts/{name}.qrels").read_text().splitlines()
        )
        assert judged == {i: str(20 + int(i)) for i in ids if i != "99"}
        seen += ids
    assert sorted(seen) == sorted([*map(str, range(8)), "99"])


def test_matches_stay_in_the_order_of_the_judgements(catalogue, run):
    many = [str(20 + i) for i in range(8)]  # the order of a set would differ from process to process
    (catalogue / "qrels.txt").write_text("".join(f"1 0 {entry} 1\n" for entry in many))
    done = call_parts(run)
    assert done.returncode == 0, done.stderr
    (judged,) = filter(None, (path.read_text() for path in (catalogue / "parts").glob("*.qrels")))
    assert [line.split()[2] for line in judged.splitlines()] == many


def test_a_test_set_of_ones_own_takes_its_part_and_its_products_with_it(catalogue, run):
    alike = [{"id": "t", "text": "one of mine"}, {"id": "7", "text": "thing 7"}]
    (catalogue / "mine.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in alike))
    (catalogue / "mine.qrels").write_text("t 0 20 1\n7 0 27 1\n")  # 20 is query 0's match
    mine = ("--test-queries", "mine.jsonl", "--test-qrels", "mine.qrels")
    done = call_parts(run, *mine)
    assert done.returncode == 0, done.stderr
    assert "1 queries share a product with a test query" in done.stderr
    parts = {
        name: [
            json.loads(line)["id"]
            for line in (catalogue / f"parts/{name}.queries.jsonl").read_text().splitlines()
        ]
        for name in ("first", "second", "third", "test")
    }
    assert sorted(parts["test"]) == ["7", "t"]
    assert (catalogue / "parts/test.qrels").read_text().split()[::2][:4] == ["t", "20", "7", "27"]
    dealt = parts["first"] + parts["second"] + parts["third"]
    assert sorted(dealt) == ["1", "2", "3", "4", "5", "6", "99"]
    refused = call_parts(run, *mine[:2])
    assert refused.returncode == 2
    assert "needs both --test-queries FILE and --test-qrels FILE" in refused.stderr


def test_parts_are_dealt_by_a_key_where_wrong_matches_chain(catalogue, run):
    chain = "".join(f"{i} 0 {20 + (i + 1) % 8} 1\n" for i in range(8))  # a wrong match to the next of each
    (catalogue / "qrels.txt").write_text((catalogue / "qrels.txt").read_text() + chain)
    alike = [{"id": str(i), "text": f"thing {i}", "product_id": i // 2} for i in range(8)]
    (catalogue / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in alike))
    done = call_parts(run)
    assert done.returncode == 1
    assert "8 queries of 1 products cannot fill 4 parts" in done.stderr
    assert "wrong matches chain" in done.stderr
    assert "--by product_id" in done.stderr
    done = call_parts(run, "--by", "product_id", "--json")
    assert done.returncode == 0, done.stderr
    assert "matches of queries in several parts" in done.stderr
    where = {}
    for part in ("first", "second", "third", "test"):
        for line in (catalogue / f"parts/{part}.queries.jsonl").read_text().splitlines():
            where[int(json.loads(line)["id"])] = part
    assert len(where) == 8
    assert all(where[i] == where[i + 1] for i in range(0, 8, 2))
    done = call_parts(run, "--by", "gtin")
    assert done.returncode == 1
    assert '8 of 8 queries have no "gtin"' in done.stderr


def test_parts_write_titles_in_the_width_asked_for(catalogue, run):
    assert call_parts(run, "--width", "full", "--matched").returncode == 0
    with gzip.open(catalogue / "parts/corpus.jsonl.gz", "rt") as file:
        texts = {row["id"]: row["text"] for row in map(json.loads, file)}
    assert texts["0"] == "ｒｅｄ\u3000ｌａｍｐ"
    written = [
        (catalogue / f"parts/{n}.queries.jsonl").read_text() for n in ("first", "second", "third", "test")
    ]
    assert "ｒｅｄ\u3000ｌａｍｐ" in "".join(written)
    assert '"99"' not in "".join(written)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--shares", "first=0.5"), "together they are 1"),
        (("--shares", "first=0.5, first=0.5"), "each part once"),
        (("--shares", "a/b=1"), "PART=SHARE"),
        (("--width", "wide"), "as-is, full, half"),
        (("--field", "name"), "choose from: all, title"),
    ],
)
def test_parts_say_what_they_take(catalogue, run, more, said):
    done = call_parts(run, *more)
    assert done.returncode == 2
    assert said in done.stderr.replace("\n", " ")


def test_search_leaves_out_the_querys_own_entry(catalogue, run):
    assert call_parts(run, "--shares", "all=1.0").returncode == 0
    assert run("index", "parts/corpus.jsonl.gz", "--out", "i").returncode == 0
    found = {}
    for own in ("keep", "id", "same"):
        done = run(
            "search", "--index", "i", "--queries", "parts/all.queries.jsonl", "-k", "2", "--own", own,
            "--out", f"{own}.run",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = [line.split() for line in (catalogue / f"{own}.run").read_text().splitlines()]
        found[own] = {query: [d for q, _, d, *_ in rows if q == query] for query in ("0", "2")}
    assert found["keep"]["2"] == ["2", "22"]
    assert found["id"]["2"] == found["same"]["2"] == ["22"]
    assert "0" in found["keep"]["0"]
    assert found["same"]["0"][0] == "20"
    assert len(found["same"]["0"]) == 2  # one deeper was searched, so that two remain


def test_an_id_alone_makes_no_own_entry_unless_told_so(tmp_path, run):
    (tmp_path / "c.jsonl").write_text(
        '{"id": "0", "text": "red lamp large"}\n{"id": "1", "text": "red lamp"}\n'
    )
    (tmp_path / "q.jsonl").write_text('{"id": "0", "text": "red lamp"}\n')
    assert run("index", "c.jsonl", "--out", "i").returncode == 0
    for own, expected in (("same", ["1", "0"]), ("id", ["1"])):
        assert (
            run("search", "--index", "i", "--queries", "q.jsonl", "--own", own, "--out", "r").returncode == 0
        )
        assert [line.split()[2] for line in (tmp_path / "r").read_text().splitlines()] == expected


def test_pairs_are_counted_for_people_and_machines(tmp_path, run):
    rows = [("q1", "d1", 1), ("q1", "d2", 1), ("q2", "d1", 0)]
    keys = ("query_id", "query", "doc_id", "passage", "text", "label")
    lines = [json.dumps(dict(zip(keys, (q, "a", d, 0, "b", label), strict=True))) for q, d, label in rows]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "t.qrels").write_text("q1 0 d1 1\n")
    said = json.loads(run("label-stats", "p.jsonl", "--truth", "t.qrels", "--json").stdout)
    assert (said["relevant"], said["queries_relevant"], said["precision"], said["recall"]) == (2, 1, 0.5, 1.0)
    table = run("label-stats", "p.jsonl").stdout
    assert "with a relevant" in table


def test_versus_counts_draws_and_names(files, run):
    done = run(
        "versus", "bm25.run", "ql.run", "--qrels", "qrels.txt", "--ranges", "1", "--chart", "c.svg", "--json"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["first"], said["queries"], said["both"], said["neither"]) == ("bm25", 3, 2, 1)
    assert (files / "c.svg").exists()
    named = run(
        "paired-wins", "bm25.run", "ql.run", "--qrels", "qrels.txt", "--ranges", "1", "--names", "old,new"
    )
    assert "only old right" in named.stdout
    wrong = run("paired-wins", "bm25.run", "ql.run", "--qrels", "qrels.txt", "--names", "old")
    assert wrong.returncode == 2


def test_a_threshold_is_chosen_on_scored_pairs_and_says_what_others_keep(tmp_path, run):
    keys = ("query_id", "query", "doc_id", "passage", "text", "label", "score", "scale")
    rows = [("d1", 0.9), ("d2", 0.7), ("d3", 0.6), ("d4", 0.2)]
    lines = [
        json.dumps(dict(zip(keys, ("q1", "a", d, 0, "b", -1, s, "probability"), strict=True)))
        for d, s in rows
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "t.qrels").write_text("q1 0 d1 1\nq1 0 d3 1\nq1 0 d2 0\n")
    call = ("threshold", "p.jsonl", "--truth", "t.qrels", "--also", "0.86", "--out", "chosen.json")
    said = json.loads(run(*call, "--json").stdout)
    chosen = json.loads((tmp_path / "chosen.json").read_text())
    assert said["threshold"] == chosen["threshold"] == pytest.approx(0.6)
    assert (said["right"], said["of"], said["also"][0]["recall"]) == (2, 2, 0.5)
    spoken = run(*call)
    assert "chosen by f1, keeps 2 of 2 right pairs (100%)" in spoken.stderr
    assert "0.8600" in spoken.stdout
    refused = run(*call, "--also", "high")
    assert refused.returncode == 2
    assert "numbers with commas" in refused.stderr


def test_noise_moves_a_share_of_the_judgements(files, run):
    call = ("label-noise", "--qrels", "qrels.txt", "--run", "ql.run", "--seed", "1", "--out", "noisy.qrels")
    done = run(*call, "--share", "0")
    assert done.returncode == 0, done.stderr
    assert "0 of 3 relevant judgements are wrong now" in done.stderr
    said = run(*call, "--share", "1", "--json")
    counts = json.loads(said.stdout)
    assert counts["wrong"] + counts["missing"] == counts["relevant"] == 3
    assert counts["missing"]
    assert "give a deeper run" in said.stderr
    assert run(*call, "--share", "1.5").returncode == 2
