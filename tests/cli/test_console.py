"""Whatever a document holds, it is shown, and commands no terminal."""

import json
import re

import pytest

from rankhouse.cli import console
from rankhouse.page.tables import Table

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
EVIL = "\x1b[2J\x1b]0;owned\x07 \x9b31m del\x7f back\b over\r turn\u202e half\udc80 [bold]not markup[/b]"


def test_control_characters_become_symbols_and_nothing_else_changes():
    assert console.visible("a\x1b[31m\x07\r\x7f\x9b\u202e\udcff") == "a␛[31m␇␍␡\ufffd\ufffd\ufffd"
    for text in ("plain", "é 中 \U0001f600 עברית\u200f", "tab\tand\nline\u00a0"):
        assert console.visible(text) == text


def test_no_document_reaches_the_terminal_raw(tmp_path, run):
    text = EVIL.replace("\udc80", "")
    (tmp_path / "evil.jsonl").write_text(json.dumps({"id": "\x1b[1md", "text": text}) + "\n")
    refused = run("index", "evil.jsonl", "--out", "evil")
    assert refused.returncode == 1
    assert not CONTROLS.search(refused.stdout + refused.stderr), ascii(refused)
    record = {"id": "[bold]d", "title": f"Title {text}", "text": f"pilots {text} steer"}
    (tmp_path / "c.jsonl").write_text(json.dumps(record) + "\n")
    assert run("index", "c.jsonl", "--out", "i").returncode == 0
    for options in ((), ("--json",)):
        found = run("search", "--index", "i", "--query", "pilots \x1b[5m", *options)
        assert found.returncode == 0
        assert not CONTROLS.search(found.stdout + found.stderr), ascii(found)
    assert json.loads(found.stdout)[0]["title"] == record["title"].strip()
    assert "␛[2J" in run("search", "--index", "i", "--query", "pilots").stdout


def test_no_faulty_line_reaches_the_terminal_raw(tmp_path, run):
    (tmp_path / "bad.run").write_text("q Q0 \x1b[31md 1 nan\x1b[5m t\n")
    for arguments in (("doctor", "bad.run"), ("evaluate", "--qrels", "bad.run", "bad.run")):
        done = run(*arguments)
        assert done.returncode == 1
        assert "␛[" in done.stdout + done.stderr
        assert not CONTROLS.search(done.stdout + done.stderr), ascii(done)


@pytest.mark.parametrize("cell", ["[/b]", "[red]x", "\x1b[1m"])
def test_a_table_s_cells_are_text_not_markup(cell, capsys):
    console.print_table(Table((cell, "n"), ((cell, "1"),), legend=f"by {cell}"), f"of {cell}")
    assert capsys.readouterr().out.count(console.visible(cell)) == 4


def test_a_wrong_command_is_shown_and_not_obeyed(run):
    done = run("\x07x\x9b31m")
    assert done.returncode == 2
    assert '"\N{SYMBOL FOR BELL}x\ufffd31m"' in done.stderr
