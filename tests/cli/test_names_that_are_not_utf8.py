"""Files whose names are not UTF-8: every command takes them, and what it prints or writes can be read."""

import json
import os

import pytest

from rankhouse.core.errors import encodable

ODD = os.fsdecode(b"caf\xe9")
DOCUMENTS = [{"id": f"d{i}", "text": f"pilot ships sail number{i} {'lamps ' * i}"} for i in range(12)]
SHOWN = "caf%E9"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="names are text there")


@pytest.fixture
def odd(tmp_path, run):
    """A corpus, an index, queries, judgements and two runs, all of such names."""
    try:
        (tmp_path / f"{ODD}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in DOCUMENTS))
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    (tmp_path / f"{ODD}.tsv").write_text("".join(f"q{i}\tpilot number{i} lamps\n" for i in range(4)))
    (tmp_path / f"{ODD}.qrels").write_text("".join(f"q{i} 0 d{i} 1\n" for i in range(4)))
    assert run("index", f"{ODD}.jsonl", "--out", f"{ODD}.index").returncode == 0
    for name, model in (("one", "bm25"), ("two", "ql")):
        search = ["search", "--index", f"{ODD}.index", "--queries", f"{ODD}.tsv", "--model", model]
        assert run(*search, "--out", f"{ODD}-{name}.run").returncode == 0
    return tmp_path


RUNS, TASK = [f"{ODD}-one.run", f"{ODD}-two.run"], ["--index", f"{ODD}.index", "--queries", f"{ODD}.tsv"]
JUDGED = ["--qrels", f"{ODD}.qrels"]
COMMANDS = {
    "index": ["index", f"{ODD}.jsonl", "--prefix-ids", "--out", "prefixed.index", "--json"],
    "search": ["search", *TASK, "--out", f"{ODD}.run", "--json"],
    "evaluate": ["evaluate", *RUNS, *JUDGED],
    "evaluate, as JSON": ["evaluate", *RUNS, *JUDGED, "--json"],
    "evaluate, a page": ["evaluate", *RUNS, *JUDGED, "--report", f"{ODD}.html"],
    "evaluate, a table": ["evaluate", *RUNS, *JUDGED, "--per-query", f"{ODD}.queries.tsv"],
    "evaluate, a chart": ["evaluate", *RUNS, *JUDGED, "--baseline", RUNS[0], "--chart", f"{ODD}.svg"],
    "paired-wins": ["paired-wins", *RUNS, *JUDGED, "--ranges", "2", "--chart", f"{ODD}.svg"],
    "axioms": ["axioms", "--run", RUNS[0], "--run", RUNS[1], *TASK, "--json"],
    "explain": ["explain", *TASK, "--query", "q1", "--run", RUNS[0], "--top", "2", "--json"],
    "label": [
        "label", *TASK, "--run", RUNS[0], "--rule", f'judged("{ODD}.qrels")', "--out", f"{ODD}.pairs.jsonl"
    ],
    "doctor": ["doctor", f"{ODD}.jsonl", f"{ODD}.tsv", f"{ODD}.index", RUNS[0], "--json"],
    "fuse": ["fuse", *RUNS, "--out", f"{ODD}.run", "--json"],
    "folds": ["folds", "--queries", f"{ODD}.tsv", "--folds", "2", "--out", f"{ODD}.folds.json", "--json"],
    "subset": ["subset", "--run", RUNS[0], "--sample", "2", "--out", f"{ODD}.run"],
    "combine": ["combine", RUNS[0], "--out", f"{ODD}.run"],
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_such_names(odd, run, name):
    if "chart" in " ".join(COMMANDS[name]) or "--report" in COMMANDS[name]:
        pytest.importorskip("matplotlib")
    done = run(*COMMANDS[name])
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).encode()
    for path in odd.rglob("*.*"):
        if path.suffix in (".html", ".svg", ".json", ".tsv", ".run"):
            path.read_bytes().decode()


def test_ids_made_of_names_stay_apart(odd, run):
    for byte in (b"\xe8", b"\xe9"):
        other = os.fsdecode(b"caf" + byte)
        (odd / f"{other}.jsonl").write_text('{"id": "d1", "text": "pilot ships"}\n')
    names = [os.fsdecode(b"caf" + byte) + ".jsonl" for byte in (b"\xe8", b"\xe9")]
    assert run("index", *names, "--prefix-ids", "--out", "both.index").returncode == 0
    assert run("search", "--index", "both.index", "--queries", f"{ODD}.tsv", "--out", "x.run").returncode == 0
    assert "caf%E8:d1" in (odd / "x.run").read_text()
    assert encodable(ODD) == SHOWN


def test_up_indexes_such_a_file_once(odd):
    from rankhouse.serve.folder.choice import look
    from rankhouse.serve.folder.files import FolderReader, FolderState, compare

    folder = odd / ODD
    folder.mkdir()
    (folder / f"{ODD}.txt").write_text("ships sail")
    files, _ = look(folder, {})
    FolderState("f", files).save(odd / "files.json")
    again, _ = look(folder, FolderState.load(odd / "files.json").files)
    assert str(compare(files, again)) == "nothing changed"
    assert again[f"{ODD}.txt"] == files[f"{ODD}.txt"]
    [document] = FolderReader(folder).documents([f"{ODD}.txt"])
    assert (document.id, document.title) == (f"{SHOWN}.txt", SHOWN)


def test_a_name_that_cannot_be_kept_is_said(odd, run):
    done = run("index", f"{ODD}.jsonl", "--shard", "1/1", "--out", "part")
    assert done.returncode == 1
    assert "is not UTF-8, which cannot be kept" in done.stderr
