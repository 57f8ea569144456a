"""Reports: the same numbers give the same bytes, and any name, number of queries or systems reads well."""

import re
import struct
import sys
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from rankhouse.core.errors import MissingExtra, OutputFailed, WrongUse
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import compare
from rankhouse.evaluation.report import (
    differences_table,
    extremes_tables,
    inline_chart,
    means_table,
    per_query_table,
    records,
    write_chart,
    write_per_query,
    write_report,
)

TEXT = "a <script>alert(1)</script> query"
NASTY = 'bm25 <b>"bold"</b> & $x_1$ | 検索'


def some_runs(queries, names):
    generator = np.random.default_rng(0)
    return {
        name: Run.of(
            (f"query-{q}", f"d{d}", float(generator.normal() + (0.5 + quality) * (d < 3)))
            for q in range(queries)
            for d in range(12)
        )
        for quality, name in enumerate(names)
    }


def some_qrels(queries):
    return {f"query-{q}": {f"d{d}": int(d < 3) for d in range(12)} for q in range(queries)}


@pytest.fixture(scope="module")
def comparison():
    return compare(some_runs(30, ["old", "new", NASTY]), some_qrels(30), "AP P@5", "old", "t", "holm")


def test_the_means_table_has_a_row_a_system_and_marks_what_is_significant(comparison):
    table = means_table(comparison)
    assert table.columns == ("system", "AP", "P@5")
    assert [row[0] for row in table.rows] == ["old", "new", NASTY]
    assert table.rows[0][1] == f"{comparison.cell('old', 'AP').mean:.4f}"
    assert table.rows[2][1].endswith(" ▲") == comparison.cell(NASTY, "AP").paired_test.significant is True
    assert (2, 1) in table.strong
    assert table.legend.startswith(comparison.method)


def test_a_column_in_which_all_are_equal_has_no_best():
    run = Run.of([("q", "d", 1.0)])
    assert means_table(compare({"a": run, "b": run}, {"q": {"d": 1}}, "AP", "a")).strong == frozenset()


def test_a_loss_is_marked_as_a_loss(comparison):
    names = list(comparison.scores)
    reversed_runs = compare(some_runs(30, names), some_qrels(30), "AP", NASTY)
    assert means_table(reversed_runs).rows[0][1].endswith(" ▼")
    assert differences_table(reversed_runs).rows[0][2].startswith("-")


def test_the_differences_table_has_a_row_a_test(comparison):
    table = differences_table(comparison)
    assert len(table.rows) == 4
    assert len(differences_table(comparison, "new").rows) == 2
    contrast = comparison.cell("new", "AP").paired_test
    assert table.rows[0][6] == f"{contrast.wins} / {contrast.ties} / {contrast.losses}"
    assert differences_table(compare(some_runs(3, ["a"]), some_qrels(3), "AP")).rows == ()


def test_markdown_escapes_bars_and_sets_numbers_to_the_right(comparison):
    lines = means_table(comparison).to_markdown().splitlines()
    assert lines[1] == "| --- | ---: | ---: |"
    assert "$x_1$ \\| 検索 |" in lines[4]
    assert lines[4].count("**") == 4
    assert lines[-1] == means_table(comparison).legend


def test_best_and_worst_queries_show_their_words(comparison):
    best, worst = extremes_tables(comparison, "new", "AP", 2, {"query-1": "how to open a file"})
    assert best.columns == ("query", "text", "baseline", "system", "difference")
    assert len(best.rows) == len(worst.rows) == 2
    assert best.rows[0][4].startswith("+")
    assert worst.rows[0][4].startswith("-")


def test_records_hold_every_cell_and_no_nan(comparison):
    rows = records(comparison)
    assert [(row["system"], row["measure"]) for row in rows] == [
        (c.system, c.measure) for c in comparison.cells
    ]
    assert "p" not in rows[0]
    assert rows[2]["p"] == comparison.cells[2].paired_test.p
    assert rows[2]["difference_low"] == comparison.cells[2].paired_test.low
    assert rows[2]["low"] == comparison.cells[2].low
    single = records(compare(some_runs(1, ["a", "b"]), some_qrels(1), "AP", "a"))
    assert single[0]["low"] is None
    assert single[1]["difference_high"] is None


def test_the_per_query_file_reads_back_to_the_last_bit(comparison, tmp_path):
    write_per_query(comparison.scores, tmp_path / "queries.tsv")
    lines = [line.split("\t") for line in (tmp_path / "queries.tsv").read_text("utf-8").splitlines()]
    assert lines[0] == ["query", "system", "AP", "P@5"]
    assert len(lines) == 1 + 3 * 30
    assert float(lines[1][2]) == comparison.scores["old"].per_query[lines[1][0]]["AP"]
    assert per_query_table({}).rows == ()


def test_the_page_stands_alone_and_escapes_every_name(outline_of, comparison, tmp_path):
    path = tmp_path / "deep" / "report.html"
    write_report(comparison, path, "Old & <new>", dict.fromkeys(comparison.query_ids, TEXT))
    page = path.read_text("utf-8")
    outline = outline_of(page)
    assert outline.tags.count("svg") == 4 + 2  # each measure of both challengers, and gain by difficulty
    assert "script" not in outline.tags
    assert "b" not in outline.tags
    assert "link" not in outline.tags
    assert all(reference.startswith("#") for reference in outline.references)
    assert set(re.findall(r"https?://[^\"' )]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert len(outline.ids) == len(set(outline.ids))
    text = " ".join(" ".join(outline.text).split())
    assert "Old & <new>" in text
    assert NASTY in text
    assert TEXT in text
    assert f"{comparison.cell('new', 'P@5').mean:.4f}" in text
    assert comparison.method in text
    assert "prefers-color-scheme: dark" in page


@pytest.mark.slow
def test_the_same_comparison_gives_the_same_page_and_pictures(comparison, tmp_path):
    for name in ("report.html", "chart.svg", "chart.png"):
        for turn in ("one", "two"):
            if name == "report.html":
                write_report(comparison, tmp_path / turn / name)
            else:
                write_chart(comparison, "new", "AP", tmp_path / turn / name)
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_page_without_a_baseline_has_means_only(outline_of, tmp_path):
    write_report(compare(some_runs(5, ["a", "b"]), some_qrels(5), "AP"), tmp_path / "report.html")
    outline = outline_of((tmp_path / "report.html").read_text("utf-8"))
    assert "svg" not in outline.tags
    assert outline.tags.count("table") == 1


def test_a_page_over_one_query_says_so(tmp_path):
    write_report(compare(some_runs(1, ["a", "b"]), some_qrels(1), "AP", "a"), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "one query alone cannot show" in page
    assert "nan" not in page


@pytest.mark.parametrize("queries", [1, 2, 60, 61, 300])
def test_charts_are_drawn_for_any_number_of_queries(queries, tmp_path):
    drawn = compare(some_runs(queries, ["a", "b"]), some_qrels(queries), "AP", "a")
    write_chart(drawn, "b", "AP", tmp_path / "chart.svg")
    svg = (tmp_path / "chart.svg").read_text("utf-8")
    assert ET.fromstring(svg).tag.endswith("svg")
    assert ("largest gain first" in svg) == (queries > 60)
    assert ("query-0" in svg) == (queries <= 60)
    assert len(svg) < 60_000
    write_chart(drawn, "b", "AP", tmp_path / "chart.png")
    head = (tmp_path / "chart.png").read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert struct.unpack(">II", head[16:])[0] == 1440


def test_a_chart_of_no_difference_is_drawn_too(tmp_path):
    run = some_runs(4, ["a"])["a"]
    write_chart(compare({"a": run, "b": run}, some_qrels(4), "AP", "a"), "b", "AP", tmp_path / "chart.svg")
    assert "0 better, 4 equal, 0 worse" in (tmp_path / "chart.svg").read_text("utf-8")


def test_long_names_keep_their_ends(tmp_path):
    name = "crossencoder(" + "x" * 80 + ")@last"
    runs = {"a": Run.of([("topic-" + "0" * 40 + "-7", "d", 1.0)]), name: Run.of([("q", "d", 1.0)])}
    write_chart(
        compare(runs, {"topic-" + "0" * 40 + "-7": {"d": 1}, "q": {"d": 1}}, "AP", "a"),
        name,
        "AP",
        tmp_path / "c.svg",
    )
    svg = (tmp_path / "c.svg").read_text("utf-8")
    assert re.search(r">AP: crossencoder\(x+…x+\)@last against a<", svg)
    assert re.search(r">topic-0+…0+-7<", svg)


def test_inline_charts_take_their_colours_from_the_page(comparison):
    svg = inline_chart(comparison, "new", "AP")
    assert svg.startswith("<svg")
    assert {f"var(--{name})" for name in ("ink", "muted", "grid", "gain", "loss")} <= set(
        re.findall(r"var\(--\w+\)", svg)
    )
    assert not re.search(r"#[0-9a-f]{6}", svg)


def test_the_users_own_plotting_settings_change_nothing(comparison, tmp_path):
    import matplotlib as mpl

    write_chart(comparison, "new", "AP", tmp_path / "plain.svg")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9, "axes.grid": True}):
        write_chart(comparison, "new", "AP", tmp_path / "styled.svg")
        assert mpl.rcParams["font.size"] == 30
    assert (tmp_path / "plain.svg").read_bytes() == (tmp_path / "styled.svg").read_bytes()


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_missing_packages_are_said_with_the_command_that_brings_them(
    comparison, tmp_path, monkeypatch, missing
):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=r'pip install "rankhouse\[report\]"'):
        write_report(comparison, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_wrong_wishes_are_refused(comparison, tmp_path):
    with pytest.raises(WrongUse, match=r"chart.pdf.*\.png or \.svg"):
        write_chart(comparison, "new", "AP", tmp_path / "chart.pdf")
    with pytest.raises(WrongUse, match='"newer" is not a known system'):
        write_chart(comparison, "newer", "AP", tmp_path / "chart.svg")
    with pytest.raises(WrongUse, match="was not computed"):
        write_chart(comparison, "new", "RR", tmp_path / "chart.svg")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFailed):
        write_report(comparison, tmp_path / "file" / "report.html")
