"""Answers as text, Markdown, tables and pages: the sentence, the parts, the words, and nothing that runs."""

import re
from dataclasses import replace

import numpy as np
import pytest

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.run import Run
from rankhouse.explanation import contrast as contrasts
from rankhouse.explanation import report, show
from rankhouse.explanation.answer import Counterfactual, Explanation, Grid, Part, ReadText, Word
from rankhouse.explanation.contrast import (
    DocumentRank,
    Movement,
    RankingExplanation,
    changed_places,
    contrast,
)
from rankhouse.explanation.report import MOST_WORDS, view_of

QUERY = Query("q1", "who steers ships?")


def document(doc_id, text, values, **more):
    """An explanation of one passage whose query words are parts."""
    words = tuple(
        Word(word, value, "ships" if "ship" in word else "steers", 0.9 if "ship" in word else 0.4)
        for word, value in zip(text.split(), values, strict=False)
    )
    unread = tuple(Word(word, read=False) for word in text.split()[len(values) :])
    parts = tuple(
        Part(
            name,
            value,
            "tf 2, in 31 documents",
            {"idf": 2.5, "tf": 2.0},
            (Part("idf", value / 2), Part("tf", value / 2)),
        )
        for name, value in (
            ("ships", sum(values) / 2),
            ("steers", sum(values) / 4),
            ("no words", sum(values) / 4),
        )
    )
    grid = Grid(
        "kernel shares",
        ("ships", "steers"),
        ("1", "0.9"),
        np.array([[values[0], -0.5], [0.0, 0.25]], np.float32),
    )
    return Explanation(
        QUERY, doc_id, sum(values), "kernel shares", True, "score", parts, 3,
        texts=(ReadText(0, (*words, *unread), name="passage 1", value=sum(values)),),
        query_words=("steers", "ships"), grids=(grid,), notes=more.get("notes", ()),
        ranker="0123456789abcdef-fp32",
    )  # fmt: skip


def two():
    """A contrast with a counterfactual, and words that were not read."""
    cut = ("2 words were not read.",)
    first = document(
        "pilots", "Pilots board ships and steer them into the harbour", [0.1, 0.0, 2.0, 0.0, 1.0, -0.25]
    )
    second = document(
        "locks",
        "A lock lifts ships between two levels",
        [0.0, -0.5, 0.0, 1.5, 0.0],
        notes=cut,
    )
    flip = Counterfactual(
        "pilots", ("ships", "steer"), ((0, 2), (0, 4)), "word", first.score, 0.2, "locks", second.score, True
    )
    return contrast(first, second, flip)


NASTY = '<script>alert("x")</script> & \x1b[31m|`*_'


def ranking():
    first, second = two().first, two().second
    return RankingExplanation(QUERY, "new.run", (first, second), (1, 2))


def movement():
    standings = DocumentRank("old.run", 9, 1.5, 100), DocumentRank("new.run", 1, 2.85, 100)
    return Movement(QUERY, "pilots", *standings, ("locks",), (), two(), two().first)


ANSWERS = {"one": lambda: two().first, "two": two, "ranking": ranking, "movement": movement}


@pytest.fixture(params=ANSWERS)
def answer(request):
    return ANSWERS[request.param]()


def page_of(answer, tmp_path):
    report.write(answer, tmp_path / "why.html")
    return (tmp_path / "why.html").read_text("utf-8")


def test_text_markdown_and_notebook_begin_with_the_sentence(answer):
    assert show.to_text(answer).startswith(answer.sentence())
    assert show.to_markdown(answer).startswith(answer.sentence()[:12])
    assert show.to_html(answer).startswith("<p>")


def test_a_page_stands_alone_with_its_sentence_and_is_well_formed(answer, outline_of, tmp_path):
    page = page_of(answer, tmp_path)
    outline = outline_of(page)
    assert not {"script", "link", "iframe", "img"} & set(outline.tags)
    assert outline.references == []
    assert len(outline.ids) == len(set(outline.ids))
    assert not re.search(r"https?://", page)
    flat = " ".join("".join(outline.text).replace("−", "-").split())
    assert answer.sentence() in flat
    assert QUERY.text in flat


def test_a_page_is_the_same_bytes_each_time(answer, tmp_path):
    assert page_of(answer, tmp_path) == page_of(answer, tmp_path)


def test_a_page_shows_both_documents_their_parts_words_and_what_would_flip_them(outline_of, tmp_path):
    page = page_of(two(), tmp_path)
    text = "".join(outline_of(page).text)
    for said in ("pilots", "locks", "What separates them", "What would flip the order", "kernel shares",
                 "harbour", "+0.9250", "2 words were not read."):  # fmt: skip
        assert said in text, said
    assert len(re.findall(r'class="w up m\d gone s\d+ c\d+"', page)) == 2  # ships and steer would have to go
    assert page.count('type="radio"') == 2
    assert '<span class="w unread"' in page


def test_what_documents_hold_is_text_everywhere(tmp_path):
    told = document("pilots", "ships", [1.0])
    nasty = replace(
        told,
        query=Query("q", NASTY),
        doc_id=NASTY,
        parts=(Part(NASTY, 1.0, NASTY),),
        texts=(ReadText(0, (Word(NASTY, 1.0),), name=NASTY),),
        notes=(NASTY,),
    )
    page = page_of(nasty, tmp_path)
    assert "<script" not in page
    assert "<script" not in show.to_html(nasty)
    assert "<script" not in show.to_markdown(nasty).replace("\\<script", "")


def test_words_have_signs_by_their_share_and_unread_ones_are_told():
    words = (
        Word("much", 2.0),
        Word("some", 0.5),
        Word("less", -1.5),
        Word("bit", 0.1),
        Word("like", None, "ship", 0.9),
    )
    marked = show.marked_text(ReadText(0, (*words, Word("cut", read=False))), "t")
    assert marked.words == (
        ("much⁺⁺", "gain"), ("some⁺", "gain"), ("less⁻⁻", "loss"), ("bit", ""), ("like°", "match"),
        ("[not read:", ""), ("cut", "unread"), ("]", ""),
    )  # fmt: skip


def test_a_contrast_s_table_adds_up_and_leaves_out_what_adds_nothing():
    told = two()
    silent = replace(told, parts=(*told.parts, Part("who", 0.0, "", {"first": 0.0, "second": 0.0})))
    table = show.contrast_table(silent)
    assert [row[0] for row in table.rows if not row[0].startswith("·")] == [
        "ships",
        "no words",
        "steers",
        "score",
    ]
    top = [float(row[3]) for row in table.rows if not row[0].startswith("·")]
    assert sum(top[:-1]) == pytest.approx(top[-1], abs=2e-4)


def test_parts_beyond_the_most_are_summed_in_one_row():
    parts = tuple(Part(f"w{i:02}", 1.0 + i) for i in range(30))
    told = Explanation(QUERY, "d", sum(p.value for p in parts), "m", True, "bm25", parts)
    table = show.parts_table(told)
    assert table.rows[-1][0] == "18 more"
    assert sum(float(row[1]) for row in table.rows) == pytest.approx(told.score)
    assert sum(float(bar.value) for bar in view_of(told).bars) == pytest.approx(told.score)


def test_stages_behind_two_passages_that_won_are_compared_whatever_their_names():
    first, second = two().first, two().second
    pooled = [
        Explanation(
            QUERY, one.doc_id, one.score, "max", True, "score", (Part(f"passage {i}", one.score, why=one),)
        )
        for i, one in enumerate((first, second))
    ]
    [(name, inner)] = show.inner_contrasts(contrast(*pooled))
    assert name == "passage 0 and passage 1"
    assert inner.score == two().score


def test_what_would_go_is_struck_only_where_it_is_certain(tmp_path):
    """Left out were words between spaces; the ranker cut others, so that places differ."""
    words = ("ship", ".", "sail", "it", "and", "it")
    told = replace(two().first, texts=(ReadText(0, tuple(Word(w, 1.0) for w in words)),))
    flip = replace(two().counterfactual, removed=("Sail", "it", "ship"), places=((0, 1), (0, 2), (0, 0)))
    [side, _] = view_of(replace(two(), first=told, counterfactual=flip)).sides
    assert [word.text for word in side.texts[0].words if word.gone] == ["ship", "sail"]


def test_what_would_go_is_struck_in_words_that_the_ranker_cut_otherwise():
    """ "file_digest(x)" went as one; the ranker read it as four words, and "it" twice, of which one went."""
    words = ("a", "file_digest", "(", "x", ")", "it", "and", "it", "wrote", "about")
    told = replace(two().first, texts=(ReadText(0, tuple(Word(w, 1.0) for w in words)),))
    removed = ("file_digest(x)", "it", "Wrote about")
    flip = replace(two().counterfactual, removed=removed, places=((0, 1), (0, 2), (0, 4)))
    [side, _] = view_of(replace(two(), first=told, counterfactual=flip)).sides
    gone = [word.text for word in side.texts[0].words if word.gone]
    assert gone == ["file_digest", "(", "x", ")", "wrote", "about"]


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        (("ship",), 'Without the word "ship", '),
        (("ship", "sail"), 'Without the 2 words "ship" and "sail", '),
        (("def f(x): pass",), 'Without the words "def f(x): pass", '),
        (
            ("a long page", *"bcdefghi"),
            'Without the 9 stretches of words "a long page", "b", "c", "d", "e" and 4 more, ',
        ),
        (("word " * 40,), 'Without the words "word word word word word word word word word word…", '),
    ],
)
def test_what_would_go_is_named_briefly_and_for_what_it_is(removed, said):
    flip = replace(two().counterfactual, removed=removed, places=((0, 0),) * len(removed))
    assert flip.sentence().startswith(said)


def test_a_sentence_is_struck_in_every_passage_that_has_it():
    words = tuple(Word(text, 1.0) for text in ("Ships sail.", "Locks lift."))
    told = replace(two().first, texts=(ReadText(1, words, "sentence"),))
    flip = replace(two().counterfactual, removed=("Locks lift.",), places=((0, 2),), unit="sentence")
    [side, _] = view_of(replace(two(), first=told, counterfactual=flip)).sides
    assert [word.gone for word in side.texts[0].words] == [False, True]


def test_notes_of_one_document_name_it_and_notes_of_both_do_not():
    first, second = two().first, two().second
    both = contrast(first.noting("Of both.", "Mine."), second.noting("Of both.", "locks is short."))
    assert show.merged_notes(both.sides) == (
        "Of both.", "pilots: Mine.", "locks: 2 words were not read.", "locks is short.",
    )  # fmt: skip


def test_a_grid_of_both_documents_is_shown_once():
    grid = Grid("expanded query", ("ship",), ("query",), np.ones((1, 1), np.float32))
    first, second = (replace(one, grids=(grid, *one.grids)) for one in (two().first, two().second))
    view = view_of(contrast(first, second))
    assert [one.name for one in view.maps] == ["expanded query"]
    assert all("expanded query" not in [one.name for one in side.maps] for side in view.sides)


def test_the_method_is_told_with_what_an_estimate_leaves():
    told = replace(two().first, parts=(Part("ships", 2.0),), score=2.5, cost=0)
    assert show.method_line(told).endswith("; exact, the parts sum to the score (rounding: 5e-01)")
    guess = replace(told, exact=False)
    assert show.method_line(guess).endswith("; an estimate, the parts leave 0.5 of the score 2.5")
    assert show.method_line(replace(guess, score=2.0)).endswith("; an estimate")


def test_the_signs_are_explained_below_the_texts():
    lines = show.to_text(two()).splitlines()
    assert lines.index(show.LEGEND) < next(i for i, line in enumerate(lines) if line.startswith("method: "))


@pytest.mark.slow
def test_a_long_text_is_cut_and_counted(tmp_path):
    text = ReadText(0, tuple(Word(f"w{i}", 1.0) for i in range(MOST_WORDS + 7)))
    told = replace(
        two().first,
        texts=(text,),
        grids=(Grid("wide", ("q",), tuple(map(str, range(90))), np.ones((1, 90), np.float32)),),
    )
    page = page_of(told, tmp_path)
    assert "and 7 more words" in page
    assert "30 more columns are not shown" in page
    assert f"and {MOST_WORDS + 7 - show.MOST_WORDS:,} more" in show.to_text(told)


def test_ties_and_ranks_are_told():
    run = Run.of({"q": {"a": 1.0, "b": 1.0, "c": 0.5}})
    assert contrasts.standing_note("my.run", run["q"], "b").startswith(
        "b has rank 1 of 3 in my.run; it ties with a"
    )
    assert contrasts.standing_note("my.run", run["q"], "c") == "c has rank 3 of 3 in my.run."


def test_who_changed_places_is_found_where_a_ranking_lacks_a_document_too():
    before, after = (
        Run.of({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})["q"],
        Run.of({"q": {"c": 3.0, "b": 2.0, "d": 1.0}})["q"],
    )
    assert changed_places(before, after, "c") == (("a", "b"), ())
    assert changed_places(before, after, "b") == (("a",), ("c",))
    assert changed_places(before, after, "a") == ((), ("c", "b", "d"))


def test_files_have_one_of_two_endings(tmp_path):
    report.write(two(), tmp_path / "why.md")
    assert (tmp_path / "why.md").read_text("utf-8") == show.to_markdown(two())
    with pytest.raises(WrongUse, match=r"why\.pdf.*\.html or \.md"):
        report.write(two(), tmp_path / "why.pdf")


def test_an_empty_ranking_says_so(tmp_path):
    empty = RankingExplanation(QUERY, "bm25", (), (), ("bm25 finds no document for this query.",))
    assert "no document" in page_of(empty, tmp_path)
    assert "no document" in show.to_text(empty)
