"""One table, every form: what is a number, what stands out, what has to be escaped."""

import csv
import doctest
import io
import re
import subprocess
import sys

import pytest

from rankhouse.core.errors import WrongUse
from rankhouse.page import charts, tables
from rankhouse.page.tables import Table

TABLE = Table(
    ("system", "AP", "95 % interval", "of"),
    (("1-a", "0.21", "-0.1000 to +0.2000", "x"), ("new", "0.3 ± 0.1 ▲", "unknown", "3")),
    frozenset({(1, 1)}),
    "A legend.",
    {(0, 1): "± 0.01"},
)


def test_columns_of_numbers_are_known_and_the_first_names_the_row():
    assert TABLE.numeric == (False, True, True, False)
    assert Table(("id", "n"), (("1", "–"), ("2", "unknown"))).numeric == (False, False)
    assert Table(("id", "n"), ()).numeric == (False, False)
    cells = ("+0.1", "-1e-05", "< 0.0001", "1,417 ± 0", "12 / 3 / 4", "95.0%", "0.5 ▼", ".5")
    assert Table(("", "n"), tuple(("", cell) for cell in cells)).numeric[1]
    for cell in ("2024 was wet", "3rd", "1 of 2", "a", "-", "5 x"):
        assert not Table(("", "n"), (("", cell),)).numeric[1], cell


def test_text_sets_columns_of_equal_width_and_says_the_legend():
    lines = TABLE.to_text().splitlines()
    assert lines[0] == "system           AP       95 % interval  of"
    assert lines[1] == "1-a            0.21  -0.1000 to +0.2000  x"
    assert lines[3] == "A legend."


def test_html_marks_names_numbers_and_what_is_best_and_escapes_the_rest():
    html = TABLE.to_html()
    assert '<td class="name" style="text-align:left">1-a</td>' in html  # a name keeps its hyphen
    assert "<td>−0.1000 to +0.2000</td>" in html
    assert '<td><strong>0.3 ± 0.1<span class="mark gain"> ▲</span></strong></td>' in html
    assert "<td>0.21<br><small>± 0.01</small></td>" in html
    nasty = Table(("<i>",), (("<b>&",),), notes={(0, 0): "<s>"}).to_html()
    assert not re.search(r"<[bis]>", nasty)


def test_some_columns_keep_what_belongs_to_them():
    chosen = TABLE.select([0, 2, 1])
    assert chosen.columns == ("system", "95 % interval", "AP")
    assert chosen.rows[1] == ("new", "unknown", "0.3 ± 0.1 ▲")
    assert (chosen.strong, chosen.notes, chosen.legend) == ({(1, 2)}, {(0, 2): "± 0.01"}, "A legend.")
    assert TABLE.select([0]).strong == frozenset()


def test_tabs_and_frames_hold_the_texts():
    rows = list(csv.reader(io.StringIO(TABLE.to_tsv()), delimiter="\t"))
    assert rows == [list(TABLE.columns), *map(list, TABLE.rows)]
    pytest.importorskip("pandas")
    assert TABLE.to_frame().loc[1, "AP"] == "0.3 ± 0.1 ▲"


def test_markdown_keeps_bars_out_of_its_own_in_heads_and_cells():
    table = Table(("run", "a|b\nc"), (("x|y", "0.5"),), frozenset({(0, 1)}))
    assert table.to_markdown() == "| run | a\\|b c |\n| --- | ---: |\n| x\\|y | **0.5** |\n"


def test_the_examples_run():
    assert doctest.testmod(tables).failed == 0
    assert doctest.testmod(tables).attempted > 0


def test_charts_have_one_palette_whose_colours_a_page_may_replace(tmp_path):
    pytest.importorskip("matplotlib")
    seen = []

    def draw(palette):
        from matplotlib.figure import Figure

        seen.append(palette)
        figure = Figure(figsize=(2, 1))
        axes = figure.subplots()
        axes.plot([0, 1], color=palette.gain)
        charts.plain_axes(axes, palette)
        return figure

    charts.write(draw, tmp_path / "a.svg", "salt")
    assert seen == [charts.LIGHT]
    assert charts.LIGHT.gain in (tmp_path / "a.svg").read_text("utf-8")
    svg = charts.inline(draw, "salt")
    assert "var(--gain)" in svg
    assert not re.search(r"#[0-9a-f]{6}", svg)
    with pytest.raises(WrongUse, match=r"\.png or \.svg"):
        charts.write(draw, tmp_path / "a.pdf", "salt")


def test_the_room_is_light():
    code = (
        "import sys, rankhouse.page.tables, rankhouse.page.charts, rankhouse.page.html\n"
        "heavy = {'torch', 'matplotlib', 'jinja2', 'pandas', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_numbers_in_sentences_have_a_minus_too():
    html = Table(("by", "gap"), (("bm25 -0.4574, e-mail -2", "-1"),)).to_html()
    assert "bm25 −0.4574, e-mail -2" in html
    assert "−1" in html
