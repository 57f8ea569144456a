"""Every command as a person uses it, and what it says when the input is wrong."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import click
import pytest

from rankhouse.cli.main import COMMANDS, RENAMED, cli, wait_asleep
from rankhouse.io.outputs import only_writer
from rankhouse.io.trec import read_run


def test_help_lists_the_commands_and_each_command_shows_an_example(run):
    listed = run("--help")
    assert listed.returncode == 0
    for name in ("index", "search", "evaluate", "fuse", "doctor", "demo"):
        assert f"  {name} " in listed.stdout
        helped = run(name, "--help")
        assert helped.returncode == 0
        assert "Example:" in helped.stdout
    assert "rankhouse, version" in run("--version").stdout


def test_wrong_use_exits_with_2_and_lists_the_choices(run):
    for arguments, said in [
        (["serach"], "choose from: index, search"),
        (["index", "x.jsonl"], "Missing option '--out'"),
        (["search", "--index", "i"], "either --queries FILE or --query TEXT"),
        (["search", "--index", "i", "--queries", "q"], "--queries needs --out"),
        (["fuse", "a", "b", "--weights", "1", "--tune", "q", "--out", "o"], "either --weights or --tune"),
        (["index", "c.jsonl", "--out", "i", "--append", "--overwrite"], "exclude each other"),
    ]:
        done = run(*arguments)
        assert done.returncode == 2, done
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_index_reports_documents_without_words(files, run):
    done = run("index", "corpus.jsonl", "--out", "again", "--json")
    assert done.returncode == 0
    said = json.loads(done.stdout)
    assert (said["documents"], said["without_terms"], said["skipped"]) == (4, 1, [])
    assert "warning: 1 document of nothing but stop words" in done.stderr
    assert "(first: d4)" in done.stderr


def test_index_appends_overwrites_and_refuses(files, run):
    (files / "more.tsv").write_text("d9\tmore about harbour pilots\n")
    assert run("index", "more.tsv", "--out", "my.index", "--append").returncode == 0
    assert "d9" in run("search", "--index", "my.index", "--query", "pilots").stdout
    refused = run("index", "more.tsv", "--out", "my.index")
    assert refused.returncode == 2
    assert "--append" in refused.stderr
    twice = run("index", "more.tsv", "--out", "my.index", "--append")
    assert twice.returncode == 1
    assert 'the id "d9" is in the index already' in twice.stderr
    assert run("index", "more.tsv", "--out", "my.index", "--overwrite").returncode == 0
    assert "Pilots" not in run("search", "--index", "my.index", "--query", "pilots").stdout


def test_index_replaces_and_deletes_documents_in_place(files, run):
    (files / "more.tsv").write_text("d1\tnothing but otters\nd9\tmore about harbour pilots\n")
    done = run("index", "more.tsv", "--out", "my.index", "--update")
    assert done.returncode == 0
    assert "2 documents, 6 terms updated in my.index" in done.stderr
    assert "d1" in run("search", "--index", "my.index", "--query", "otters").stdout
    (files / "ids.txt").write_text("d9\nd1\n")
    done = run("index", "--delete", "ids.txt", "--out", "my.index")
    assert "2 documents deleted from my.index; it has 3" in done.stderr
    assert "d1" not in run("search", "--index", "my.index", "--query", "otters").stdout
    again = run("index", "--delete", "ids.txt", "--out", "my.index")
    assert again.returncode == 2
    assert '"d1": the index my.index has no such document' in again.stderr
    assert "is of this version already" in run("index", "--upgrade", "--out", "my.index").stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "Missing argument 'CORPUS...'"),
        (["more.tsv", "--append", "--update"], "--append and --update exclude each other"),
        (["more.tsv", "--upgrade"], "--upgrade reads no corpus: more.tsv would not be indexed"),
        (["--delete", "none.txt"], "none.txt"),
        (["more.tsv", "--append", "--field", "title,text"], "my.index does not count titles apart"),
    ],
)
def test_what_an_index_is_not_made_of_is_refused(files, run, given, said):
    done = run("index", *given, "--out", "my.index")
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_records_stop_or_are_skipped_and_listed(tmp_path, run):
    (tmp_path / "c.jsonl").write_text(
        '{"id": "a", "text": "fine words"}\nnot json\n{"id": "b c", "text": "x"}\n'
    )
    stopped = run("index", "c.jsonl", "--out", "i")
    assert stopped.returncode == 1
    assert "c.jsonl, line 2: not a JSON object" in stopped.stderr
    assert not (tmp_path / "i").exists()
    passed = run("index", "c.jsonl", "--out", "i", "--skip-bad", 5)
    assert passed.returncode == 0
    assert "2 faulty records were skipped" in passed.stderr
    assert "line 3" in passed.stderr
    assert run("index", "c.jsonl", "--out", "j", "--skip-bad", 1).returncode == 1


def test_search_writes_a_run_and_names_queries_without_results(files, run):
    done = run("search", "--index", "my.index", "--queries", "queries.tsv", "--out", "out.run.gz", "--json")
    assert json.loads(done.stdout)["without_results"] == ["q3"]
    assert 'q3 ("the of")' in done.stderr
    found = read_run(files / "out.run.gz")
    assert list(found) == ["q1", "q2"]
    assert found["q1"].doc_ids == ("d1", "d3")


@pytest.mark.slow
def test_indexes_named_together_are_searched_as_one(files, run):
    lines = (files / "corpus.jsonl").read_text().splitlines(keepends=True)
    for i, line in enumerate(lines):
        (files / f"{i}.jsonl").write_text(line)
        assert run("index", f"{i}.jsonl", "--out", f"parts/{i}/index").returncode == 0
    asked = ["--queries", "queries.tsv", "--feedback", "rm3", "--model", "bm25", "--model", "ql", "--json"]
    whole = run("search", "--index", "my.index", *asked, "--out", "whole.run")
    named = [word for i in (2, 0, 3, 1) for word in ("--index", f"parts/{i}")]
    parts = run("search", *named, *asked, "--out", "parts.run")
    folder = run("search", "--index", "parts", *asked, "--out", "folder.run")
    assert (files / "whole.run").read_bytes() == (files / "parts.run").read_bytes()
    assert (files / "whole.run").read_bytes() == (files / "folder.run").read_bytes()
    told = [json.loads(done.stdout) for done in (whole, parts, folder)]
    assert {tuple(one["without_results"]) for one in told} == {("q3",)}
    shown = [run("search", "--index", name, "--query", "steers ships") for name in ("my.index", "parts")]
    assert shown[0].stdout == shown[1].stdout
    twice = run("search", "--index", "parts/1", "--index", "parts/1", "--query", "x")
    assert twice.returncode == 1
    assert "holds the same documents as parts/1/index" in twice.stderr


def test_search_shows_titles_and_snippets(files, run):
    shown = run("search", "--index", "my.index", "--query", "who steers ships?")
    assert shown.stdout.splitlines()[0].split() == [
        "1",
        "Pilots",
        "d1",
        shown.stdout.splitlines()[0].split()[-1],
    ]
    assert "steer them into the harbour" in shown.stdout
    assert all(line == line.rstrip() for line in shown.stdout.splitlines())
    unknown = run("search", "--index", "my.index", "--query", "x", "--model", "dens('a')")
    assert 'did you mean "dense"?); choose from: bm25, bm25f, dense, impact, jm, ql' in unknown.stderr
    bare = run("search", "--index", "my.index", "--query", "x", "--model", "dense")
    assert "write  dense(RANKER)" in bare.stderr
    rows = json.loads(run("search", "--index", "my.index", "--query", "water", "-k", 1, "--json").stdout)
    assert rows[0]["id"] == "d2" or rows[0]["id"] == "d3"
    nothing = run("search", "--index", "my.index", "--query", "the of and")
    assert nothing.returncode == 0
    assert "only stop words or punctuation" in nothing.stderr


def test_evaluate_prints_tables_and_writes_what_is_asked(files, run):
    pytest.importorskip("matplotlib")
    asked = ["--measures", "AP RR@10", "--baseline", "bm25.run", "bm25.run", "ql.run", "--correction", "holm"]
    written = ["--per-query", "v.tsv", "--chart", "c.svg", "--report", "r.html"]
    done = run("evaluate", "--qrels", "qrels.txt", *asked, *written)
    assert done.returncode == 0, done.stderr
    assert "AP" in done.stdout
    assert "Holm correction over 2 tests" in done.stdout
    assert "1 of 3 judged queries without results, counted as 0: q3" in done.stderr
    assert (files / "c.svg").read_text().startswith("<?xml")
    assert "<html" in (files / "r.html").read_text()
    assert len((files / "v.tsv").read_text().splitlines()) == 7
    said = json.loads(
        run("evaluate", "--qrels", "qrels.txt", "--measures", "AP", "bm25.run", "--json").stdout
    )
    assert said["cells"][0]["mean"] == pytest.approx(2 / 3)


def test_evaluate_explains_wrong_measures_and_foreign_judgements(files, run):
    wrong = run("evaluate", "--qrels", "qrels.txt", "--measures", "nDGC@10", "bm25.run")
    assert wrong.returncode == 2
    assert "nDCG@10" in wrong.stderr
    (files / "other.txt").write_text("x1 0 d1 1\n")
    foreign = run("evaluate", "--qrels", "other.txt", "bm25.run")
    assert foreign.returncode == 1
    assert "x1" in foreign.stderr
    assert "q1" in foreign.stderr


def test_fuse_by_weights_by_rank_and_tuned(files, run):
    assert run("fuse", "bm25.run", "ql.run", "--weights", "0.7,0.3", "--out", "w.run").returncode == 0
    assert (
        run("fuse", "bm25.run", "ql.run", "--method", "rrf(k=10)", "--out", "r.run", "-k", 1).returncode == 0
    )
    assert all(len(r.doc_ids) == 1 for r in read_run(files / "r.run").values())
    tuned = run(
        "fuse", "bm25.run", "ql.run", "--tune", "qrels.txt", "--measure", "AP", "--out", "t.run", "--json"
    )
    assert json.loads(tuned.stdout)["tuned"]["tried"] == 21
    assert run("fuse", "bm25.run", "ql.run", "--weights", "a,b", "--out", "x.run").returncode == 2
    assert run("fuse", "bm25.run", "--out", "x.run").returncode == 2


def test_doctor_finds_what_is_wrong(files, run):
    sound = run(
        "doctor", "my.index", "bm25.run", "qrels.txt", "corpus.jsonl", "queries.tsv", "--qrels", "qrels.txt"
    )
    assert sound.returncode == 0, sound.stdout
    assert [line.split(": ")[1] for line in sound.stdout.splitlines() if not line.startswith(" ")] == [
        "index, sound",
        "run, sound",
        "qrels, sound",
        "corpus, sound",
        "queries, sound",
    ]
    (files / "bad.run").write_text("q1 Q0 d1 1 nan t\nq1 Q0 d2 2 1.0 t\nq1 Q0 d2 3 0.5 t\n")
    (files / "bad.qrels").write_text("q1 0 d1 yes\n")
    (files / "odd.bin").write_text("one two three\n")
    (files / "my.index" / "manifest.json").write_text("{}")
    ill = run("doctor", "bad.run", "bad.qrels", "my.index", "odd.bin", "--json")
    assert ill.returncode == 1
    faults = {found["name"]: found["faults"] for found in json.loads(ill.stdout)}
    assert len(faults["bad.run"]) == 2
    assert '"nan" is not a number' in faults["bad.run"][0]
    assert '"yes" is no whole number' in faults["bad.qrels"][0]
    assert "cannot be read" in faults["my.index"][0]
    assert "is no run (6 columns)" in faults["odd.bin"][0]
    assert "compiled kernel" in run("doctor").stdout


def test_doctor_knows_tables_and_logs_of_judgements(files, run):
    (files / "table.csv").write_text("id,title,text\n1,Ships,they sail\n2,Trains,they run\n")
    entry = '{"number":%d,"time":"2026-01-01","judge":"ann","query_id":"q1","doc_id":"d%d","grade":1}\n'
    (files / "judged.jsonl").write_text(entry % (1, 1) + entry % (2, 2))
    found = run("doctor", "table.csv", "judged.jsonl", "--json")
    assert found.returncode == 0, found.stdout
    table, log = json.loads(found.stdout)
    assert (table["kind"], table["facts"]["documents"]) == ("corpus", "2")
    assert table["facts"]["with a title"] == "2"
    assert (log["kind"], log["facts"]["entries"], log["facts"]["judges"]) == ("judgement log", "2", "1")
    (files / "judged.jsonl").write_text(entry % (1, 1) + entry % (7, 2))
    found = run("doctor", "judged.jsonl", "--json")
    assert found.returncode == 1
    assert "numbered from 1; this one says 7" in json.loads(found.stdout)[0]["faults"][0]


def test_missing_files_exit_with_1_and_one_line(tmp_path, run):
    for arguments in (
        ["index", "none.jsonl", "--out", "i"],
        ["search", "--index", "none", "--query", "x"],
        ["evaluate", "--qrels", "none", "none.run"],
        ["fuse", "a.run", "b.run", "--out", "c.run"],
    ):
        done = run(*arguments)
        assert done.returncode == 1, arguments
        assert len(done.stderr.strip().splitlines()) == 1
        assert "no such" in done.stderr


def test_output_that_cannot_be_written_is_explained(files, run):
    (files / "file").touch()
    done = run("search", "--index", "my.index", "--queries", "queries.tsv", "--out", "file/x.run")
    assert done.returncode == 1
    assert "file is a file, so nothing can be written below it" in done.stderr
    if os.path.exists("/dev/full"):
        full = run("search", "--index", "my.index", "--queries", "queries.tsv", "--out", "/dev/full/x.run")
        assert full.returncode == 1


def test_no_progress_bar_outside_a_terminal(files, run):
    done = run("index", "corpus.jsonl", "--out", "fresh")
    assert "━" not in done.stderr
    assert done.stdout == ""


def test_a_reader_that_goes_away_is_no_error(files):
    import subprocess
    import sys

    command = f"{sys.executable} -m rankhouse.cli.main search --index my.index --query water | true"
    done = subprocess.run(["bash", "-c", command], cwd=files, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


WRITERS = [
    "search --index my.index --queries queries.tsv --out OUT",
    "fuse bm25.run ql.run --out OUT",
    "select --queries queries.tsv --first 1 --out OUT",
    "concat bm25.run --out OUT",
    "folds --queries queries.tsv --out OUT",
    "label --rule judged('qrels.txt') --queries queries.tsv --index my.index --run bm25.run --out OUT",
    "label --rule judged('qrels.txt') --queries queries.tsv --index my.index --run bm25.run --out p --report OUT",  # noqa: E501
    "evaluate --qrels qrels.txt bm25.run --per-query OUT",
    "evaluate --qrels qrels.txt bm25.run --report OUT",
    "evaluate --qrels qrels.txt bm25.run ql.run --baseline bm25.run --chart OUT",
    "versus bm25.run ql.run --qrels qrels.txt --chart OUT",
    "index corpus.jsonl --out OUT",
    "index corpus.jsonl --overwrite --out OUT",
]


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.parametrize("place", ["mine", "mine.html", "mine.svg"])
def test_a_folder_of_somebodys_own_is_never_replaced(files, run, command, place):
    mine = files / place
    mine.mkdir()
    (mine / "thesis.tex").write_text("precious")
    done = run(*(place if word == "OUT" else word for word in command.split()))
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert [p.name for p in mine.iterdir()] == ["thesis.tex"]
    assert (mine / "thesis.tex").read_text() == "precious"


def test_an_index_with_something_else_in_it_is_not_overwritten(files, run):
    (files / "my.index" / "notes.txt").write_text("precious")
    done = run("index", "corpus.jsonl", "--overwrite", "--out", "my.index")
    assert done.returncode == 2
    assert "holds something else (notes.txt)" in done.stderr
    assert (files / "my.index" / "notes.txt").read_text() == "precious"
    (files / "my.index" / "notes.txt").unlink()
    assert run("index", "corpus.jsonl", "--overwrite", "--out", "my.index").returncode == 0


def test_a_run_can_go_to_standard_output(files, run):
    done = run("search", "--index", "my.index", "--queries", "queries.tsv", "--out", "-")
    assert done.stdout.splitlines()[0].startswith("q1 Q0 d1 1 ")
    assert not (files / "-").exists()


def test_an_output_that_another_process_writes_is_refused(files, run):
    with only_writer(files / "other.run"), ThreadPoolExecutor(1) as threads:
        done = threads.submit(
            run, "search", "--index", "my.index", "--queries", "queries.tsv", "--out", "other.run"
        ).result()
    assert done.returncode == 2
    assert "other.run: another process is writing it" in done.stderr
    assert not (files / "other.run").exists()


def test_a_message_that_quotes_a_whole_file_is_cut(files, run):
    done = run("search", "--index", "my.index", "--query", "ships", "--model", "b" * 70_000)
    assert done.returncode == 2
    assert len(done.stderr) < 500
    assert "choose from: bm25" in done.stderr  # a name is shortened, so that the advice is still read
    (files / "x.run").write_text("q1 Q0 d1 1 1.0 x\n")
    (files / "x.qrels").write_text("q1 0 d1 1\n")
    done = run("evaluate", "x.run", "--qrels", "x.qrels", "--measures", "b" * 70_000)
    assert done.returncode == 2
    assert len(done.stderr) < 3_000
    assert "characters more" in done.stderr


def test_folders_of_another_kind_are_not_written_into(files, run):
    before = {p.name: p.read_bytes() for p in (files / "my.index").iterdir() if p.is_file()}
    (files / "r.toml").write_text(
        'title = "x"\n[data]\nq = "queries.tsv"\n[steps.f]\ncommand = "folds"\nqueries = "@q"\n'
    )
    split = ("group-split", "--corpus", "corpus.jsonl", "--queries", "queries.tsv", "--qrels", "qrels.txt")
    train = (
        "train",
        "--ranker",
        "knrm(width=4, min_count=1)",
        "--index",
        "my.index",
        "--queries",
        "queries.tsv",
    )
    for command in (("run", "r.toml"), (*split, "--shares", "a=1"), (*train, "--qrels", "qrels.txt")):
        for place in (".", "my.index"):
            done = run(*command, "--out", place)
            assert done.returncode == 2, done.stderr
            assert "holds something else" in done.stderr
    assert before == {p.name: p.read_bytes() for p in (files / "my.index").iterdir() if p.is_file()}


def test_old_command_names_work_and_are_not_listed(files, run):
    listed = run("--help").stdout
    for old, new in RENAMED.items():
        assert f"  {old} " not in listed
        assert run(old, "--help").stdout.splitlines()[1:] == run(new, "--help").stdout.splitlines()[1:]
    for name in COMMANDS:
        assert cli.get_command(click.Context(cli), name).name == name


def test_a_recipe_in_old_words_does_the_same(files, run):
    made = []
    for key, subset in (("station", "select"), ("command", "subset")):
        (files / f"{key}.toml").write_text(
            'title = "same"\n[data]\nqueries = "queries.tsv"\n'
            f'[steps.folds]\n{key} = "folds"\nqueries = "@queries"\nfolds = 3\n'
            f'[steps.part]\n{key} = "{subset}"\nqueries = "@queries"\nfolds = "@folds"\nfold = 1\n'
            'side = "train"\n'
        )
        done = run("run", f"{key}.toml")
        assert done.returncode == 0, done.stderr
        made.append([path.read_bytes() for path in files.glob(f"{key}.out/work/part-*/part.jsonl")])
    assert made[0] == made[1] != []


def test_an_output_is_looked_at_before_any_input_is_read(run, tmp_path):
    (tmp_path / "there").mkdir()
    asked = ("--queries", "absent.tsv", "--index", "absent.index", "--run", "absent.run", "--out", "there")
    for words in (("rerank", "--ranker", "absent"), ("label", "--rule", 'judged("absent")')):
        done = run(*words, *asked)
        assert done.returncode == 2
        assert "there: is a folder, a file is to be written" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_is_missing_is_named(name, run):
    command = cli.get_command(click.Context(cli), name)
    needed = [one for one in command.params if one.required]
    values = {one: one.type.choices[0] if isinstance(one.type, click.Choice) else "1" for one in needed}
    words = {one: [*one.opts[:1] * isinstance(one, click.Option), values[one]] for one in needed}
    for missing in needed:
        code, _, told = run(name, *(word for one in needed if one is not missing for word in words[one]))
        assert code == 2, told
        assert f"Missing option '{missing.opts[-1]}'" in told or "Missing argument" in told


@pytest.mark.parametrize(
    ("load", "chosen", "spins"),
    [
        (0.2, {}, None),
        (1.5, {}, "1000"),
        (9.0, {"GOMP_SPINCOUNT": "7"}, "7"),
        (9.0, {"OMP_WAIT_POLICY": "active"}, None),
    ],
)
def test_threads_wait_asleep_on_a_busy_machine_unless_people_chose(monkeypatch, load, chosen, spins):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    wait_asleep()
    assert os.environ.get("GOMP_SPINCOUNT") == spins
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
