"""Files of several years become one; a ranking is kept within the candidates of another."""

import sys

import pytest

from rankhouse.cli.main import main
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels, read_run


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call the program in a folder with two years' files; gives exit code and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for year, first in (("a", 1), ("b", 3)):
        ids = (first, first + 1)
        (tmp_path / f"{year}.jsonl").write_text(
            "".join(f'{{"id": "{i}", "text": "q {i}", "tokens": "t {i}"}}\n' for i in ids)
        )
        (tmp_path / f"{year}.qrels").write_text("".join(f"{i} 0 d{i} 1\n{i} 0 e{i} 0\n" for i in ids))
        (tmp_path / f"{year}.run").write_text(
            "".join(f"{i} Q0 d{i} 1 2.5 x\n{i} Q0 e{i} 2 1.5 x\n" for i in ids)
        )

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rankhouse", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, capsys.readouterr().err

    return call


def test_queries_judgements_and_runs_of_two_years_become_one_file_each(run, tmp_path):
    for kind, ending in (("queries", "jsonl"), ("qrels", "qrels"), ("run", "run")):
        out = tmp_path / f"all.{ending}"
        code, told = run("combine", f"a.{ending}", f"b.{ending}", "--kind", kind, "--out", out)
        assert code == 0, told
    assert [(q.id, q.text) for q in read_queries("all.jsonl")] == [(str(i), f"q {i}") for i in (1, 2, 3, 4)]
    assert read_qrels("all.qrels") == {str(i): {f"d{i}": 1, f"e{i}": 0} for i in (1, 2, 3, 4)}
    whole = read_run("all.run")
    assert list(whole) == ["1", "2", "3", "4"]
    assert list(whole["3"].doc_ids) == ["d3", "e3"]


@pytest.mark.parametrize(("kind", "ending"), [("queries", "jsonl"), ("qrels", "qrels"), ("run", "run")])
def test_a_query_of_both_years_is_refused(kind, ending, run):
    code, told = run("combine", f"a.{ending}", f"a.{ending}", "--kind", kind, "--out", "x")
    assert code == 1
    assert 'query "1" is also in' in told


def test_a_ranking_keeps_only_the_candidates_of_another(run, tmp_path):
    (tmp_path / "few.run").write_text("1 Q0 e1 1 9 y\n1 Q0 z 2 8 y\n2 Q0 d2 1 9 y\n7 Q0 d1 1 9 y\n")
    code, told = run("subset", "--run", "a.run", "--within", "few.run", "--out", "kept.run")
    assert code == 0, told
    kept = read_run("kept.run")
    assert {q: list(kept[q].doc_ids) for q in kept} == {"1": ["e1"], "2": ["d2"]}
    assert kept["1"].scores.tolist() == [1.5]
    code, told = run("subset", "--queries", "a.jsonl", "--within", "few.run", "--out", "x.jsonl")
    assert code == 2
    assert "--within keeps documents of rankings" in told
