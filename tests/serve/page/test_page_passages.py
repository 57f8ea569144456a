"""Passages in a real browser: a hit leads to its place in the document, and a long text comes in pieces."""

import pytest

from rankhouse.core.nouns import Document
from rankhouse.serve.engine.waiting import ENDLESS
from rankhouse.serve.page import document as document_page
from rankhouse.serve.page.ask import shown
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.documents import passages_with_scores
from rankhouse.serve.search.passages import PassageFinder
from rankhouse.serve.search.shapes import SearchBody


def test_a_hit_leads_to_its_passage_marked_in_a_long_text(tab, at, follow):
    with tab(java_script_enabled=False) as page:
        page.goto(f"{at}/?query=who+hung+the+lantern")
        hit = page.locator(".hit[data-doc=chronicle]")
        assert "A lantern was hung" in hit.locator(".snippet").inner_text()
        assert hit.locator("mark").all_inner_texts() == ["lantern", "hung"]  # and neither "who" nor "the"
        follow(page, hit.locator("h3 a"))
        assert page.locator("#here mark").all_inner_texts() == ["lantern", "hung"]
        assert "A lantern was hung" in " ".join(page.locator(".here").all_inner_texts())
        box = page.locator("#here").bounding_box()
        assert 0 <= box["y"] < 900
        assert len(page.locator(".passages").inner_text()) < 20_000
        assert "Entry 499" not in page.inner_text("main")
        follow(page, page.get_by_role("link", name="Later").first)
        assert "A lantern was hung" not in page.inner_text("main")
        follow(page, page.get_by_role("link", name="Earlier").first)
        follow(page, page.get_by_role("link", name="Whole text").first)
        assert "Entry 0 " in page.inner_text("main")
        assert "Nobody took the lantern down." in page.inner_text("main")


def test_a_passage_of_many_pages_is_not_shown_whole(tab, at, served):
    """A list without sentences is one passage; a page of it was 20,000 pixels high."""
    items = "".join(f"* item {number} of the weather\n" for number in range(3_000))
    document = Document("list.md", f"* lantern\n{items}")
    shaded = passages_with_scores(served[0].catalogue, served[0].catalogue.view(), document, "lantern")
    assert shaded.best.end > 50_000
    catalogue = served[0].catalogue
    with pytest.MonkeyPatch.context() as patch, tab() as page:
        patch.setattr(document_page, "read_document", lambda *_: (catalogue.view(), document))
        page.goto(f"{at}/document?doc=list.md&query=lantern&system=bm25")
        assert "lantern" in page.inner_text(".passages")
        assert len(page.inner_text(".passages")) < 20_000


def test_hits_that_are_shown_are_counted_from_one(served):
    """Where documents far from the question were left out, ranks were 1, 6, 8, 9, 10."""
    service = served[0]
    found = search(service.catalogue, SearchBody(query="ships"), ENDLESS)
    first = found.hits[0].doc_id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PassageFinder, "is_far", lambda finder, one: one.spans == spans[first])
        spans = {hit.doc_id: one.spans for hit, one in zip(found.hits, _found(service, found), strict=True)}
        left = shown(service, found, ENDLESS).answer.hits
    assert [hit.rank for hit in left] == list(range(1, len(left) + 1))
    assert first not in {hit.doc_id for hit in left}


def _found(service, answer):
    view = service.catalogue.view()
    finder = PassageFinder(
        service.catalogue, view, service.catalogue.system(answer.system), answer.query, ENDLESS
    )
    return finder.find(view.index.documents.fetch([hit.doc_id for hit in answer.hits]))


def test_further_passages_of_a_document_are_links(tab, at, follow):
    with tab() as page:
        page.goto(f"{at}/?query=lantern")
        hit = page.locator(".hit[data-doc=chronicle]")
        assert hit.locator(".more summary").text_content() == "1 more passage of The chronicle"
        hit.locator(".more summary").click()
        follow(page, hit.locator(".more a"))
        assert "Nobody took the lantern down." in " ".join(page.locator(".here").all_inner_texts())


def test_markdown_is_rendered_where_it_is_shown(tab, at, follow):
    with tab() as page:
        page.goto(f"{at}/?query=beacon")
        snippet = page.locator(".hit[data-doc='guide.md'] .snippet")
        assert "introduced_in" not in snippet.inner_text()
        assert "beacon --light\n    --bright <now>" in snippet.locator(".code").inner_text()
        follow(page, page.locator(".hit[data-doc='guide.md'] h3 a"))
        assert page.locator("main h2").inner_text() == "Lighting"
        assert page.locator("main pre").inner_text().startswith("beacon --light\n    --bright")
        assert page.locator("main table td").all_inner_texts() == ["whale", "9"]
        page.goto(f"{at}/document?doc=guide.md")
        assert page.locator("main pre").count() == 1


def test_words_that_are_nowhere_are_named(tab, at):
    with tab() as page:
        page.goto(f"{at}/?query=do+walruses+have+tusks")
        assert page.inner_text(".nowhere") == "No document contains “walruses” or “tusks”."
        assert page.locator(".hit").count() == 0
        page.goto(f"{at}/?query=walruses+of+the+harbour")
        assert page.locator(".nowhere").count() == 0
