"""Pages keep their style in one style sheet: a security policy may forbid style attributes."""

import re

import numpy as np

import rankhouse as rh
from rankhouse.page.charts import Palette, inline

STYLED = re.compile(r"<[a-z][^>]*\sstyle\s*=|<svg[^>]*>\s*<defs>\s*<style", re.IGNORECASE)


def draw(palette: Palette):
    from matplotlib.figure import Figure

    figure = Figure((3, 2))
    axes = figure.add_subplot()
    axes.plot([1, 2], [2, 1], color=palette.gain, linestyle="--", alpha=0.5)
    axes.text(1, 1, 'a style="fill: none" <b>', color=palette.ink, fontweight="bold")
    return figure


def test_a_chart_inside_a_page_has_attributes_in_place_of_styles():
    svg = inline(draw, "salt")
    assert not STYLED.search(svg)
    assert "<style" not in svg
    assert re.search(r'<svg stroke-linejoin="round" stroke-linecap="butt"', svg)
    assert 'stroke="var(--gain)"' in svg
    assert 'font-weight="700"' in svg or 'font-weight="bold"' in svg
    assert 'a style="fill: none" &lt;b&gt;' in svg  # words of a person stay as they are


def test_an_evaluation_has_no_style_attribute(tmp_path):
    old, new = {"q": {"a": 2.0, "b": 1.0}, "r": {"a": 2.0}}, {"q": {"b": 2.0, "a": 1.0}, "r": {"a": 1.0}}
    comparison = rh.compare({"old": old, "new": new}, {"q": {"b": 1}, "r": {"a": 1}}, "AP", baseline="old")
    comparison.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert 'class="name"' in page
    assert "<svg" in page
    assert not STYLED.search(page)


def test_an_explanation_shades_words_and_bars_by_classes(tmp_path):
    texts = ["Pilots steer ships into the harbour.", "A lock lifts ships."]

    class Ships:
        def score(self, pairs):
            return np.array(
                [pair.passage.text.count("hips") + len(pair.passage.text) for pair in pairs], "f4"
            )

    documents = [rh.Document("a", texts[0]), rh.Document("b", texts[1])]
    rh.explain(Ships(), "ships", documents, against="b").save(tmp_path / "why.html")
    page = (tmp_path / "why.html").read_text()
    assert not STYLED.search(page)
    assert re.search(r'<i class="gain s100"></i>', page)
    assert re.search(r'<span class="w up[^"]* s\d+ c\d+"', page)
    assert ".s100{--s:100}" in page
