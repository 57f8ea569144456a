"""Tables and the page: they say what was found, whatever the texts hold."""

import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

from rankhouse.core.errors import MissingExtra, OutputFailed
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.labels.candidates import none
from rankhouse.labels.label import LabelPlan, label
from rankhouse.labels.leaf_rules import judged, taught
from rankhouse.labels.report import (
    changes_table,
    confusions_table,
    positives_table,
    work_table,
    write_report,
)
from rankhouse.labels.votes import panel_of

agree = run_path(str(Path(__file__).with_name("in_memory.py")))["agree"]

NASTY = 'a <script>alert("1")</script> & $x$ -5 %s {{ 7 * 7 }}'


@pytest.fixture
def done(world, teacher, tmp_path):
    rule = judged(world.qrels, name="qrels.txt") & taught(teacher, 0.4, name="teacher")
    truth = judged({"q1": {"d5#0": 1}}, by="passage", name="passages.txt")
    plan = LabelPlan(split=world.split, negatives=none(), truth=truth, ask_all=True)
    return label(rule, world.run, world.queries, world.documents, tmp_path / "p", plan)


def page_of(done, path, **options):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    write_report(done, path, **options)
    return path.read_text("utf-8")


def test_tables_say_what_was_done(done):
    said = dict(work_table(done).rows)
    assert said["queries"] == "4"
    assert said["pairs looked at"] == f"{done.pairs:,}"
    assert said["relevant pairs written"] == str(done.relevant)
    assert work_table(done).legend == f"{done.rule}; negatives none"
    assert confusions_table(done.agreement).rows[0][0] == "judge : teacher"
    assert len(confusions_table(done.agreement).rows) == 4
    left = positives_table(done.agreement).rows[1]
    assert left == ("queries left without any", str(len(done.agreement.without)), "q4")
    removed = changes_table(done.agreement, "removed")
    assert removed.legend == f"{len(removed.rows)} of {done.agreement.removed}"
    assert all(len(row) == len(removed.columns) == 6 for row in removed.rows)


def test_a_comparison_within_the_judges_yes_says_what_it_cannot_know(world, teacher):
    rule = judged(world.qrels) & taught(teacher)
    assert "--ask-all" in confusions_table(agree(panel_of(rule), world.pairs)).legend
    assert "--ask-all" not in confusions_table(agree(panel_of(rule, ask_all=True), world.pairs)).legend
    table = confusions_table(agree(panel_of(rule), world.pairs))
    assert table.rows[0][6:8] == ("unknown", "unknown")  # kappa and precision
    assert table.rows[0][8] != "unknown"


def test_the_page_stands_alone_and_shows_everything(outline_of, done, tmp_path):
    page = page_of(done, tmp_path / "labels.html", title="Labels of ports")
    outline = outline_of(page)
    text = " ".join(" ".join(outline.text).split())
    assert outline.references == []
    assert "script" not in outline.tags
    assert outline.tags.count("svg") == 3
    assert len(outline.ids) == len(set(outline.ids))
    wanted_texts = (
        "Labels of ports",
        "negatives none",
        "judge judged('qrels.txt')",
        "judge : teacher",
        "queries left without any",
        "q4",
        "Calibration of the teacher",
        "steer them into",
    )
    for wanted in wanted_texts:
        assert wanted in text
    assert not re.search(r"#0[1-5]0[1-5]0[1-5]", page)  # every placeholder became a colour of the page


@pytest.mark.slow
def test_the_same_labelling_gives_the_same_page(done, tmp_path):
    assert page_of(done, tmp_path / "a.html") == page_of(done, tmp_path / "b.html")


def test_texts_are_shown_as_they_are(outline_of, tmp_path):
    class Half:
        scale = "probability"

        def score(self, pairs):
            return np.full(len(pairs), 0.25, np.float32)

    pairs = [Pair(Query("q<1>", NASTY), Passage("d&1", 0, NASTY))]
    rule = judged({"q<1>": {"d&1": 1}}, name=NASTY) & taught(Half(), name=NASTY)
    outline = outline_of(page_of(agree(panel_of(rule), pairs), tmp_path / "p.html", title=NASTY))
    assert outline.text.count(NASTY) >= 3
    assert "script" not in outline.tags


def test_a_page_without_teacher_or_pairs_is_still_a_page(outline_of, tmp_path, world):
    only_judge = agree(panel_of(judged(world.qrels)), world.pairs)
    assert outline_of(page_of(only_judge, tmp_path / "a.html")).tags.count("svg") == 1
    assert outline_of(page_of(agree(panel_of(judged({})), []), tmp_path / "b.html")).tags.count("svg") == 1


def test_a_page_that_cannot_be_written_says_so(done, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFailed):
        write_report(done, tmp_path / "file" / "page.html")


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_without_the_extra_the_page_says_what_to_install(done, tmp_path, monkeypatch, package):
    for name in list(sys.modules):
        if name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"rankhouse\[report\]"):
        write_report(done, tmp_path / "page.html")


def test_the_room_imports_neither_torch_nor_pictures():
    code = (
        "import sys, rankhouse.cli.commands.label, rankhouse.labels.report, rankhouse.labels.rule_notation\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'jinja2', 'sklearn', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
