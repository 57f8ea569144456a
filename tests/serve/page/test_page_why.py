"""Why in a real browser: a score, two ticked hits, a move, a ranking, a document with its passages."""

import json

VOYAGE = (
    "The crew came aboard. They stowed bread and water. The ship left the harbour at dawn. A harbour "
    "number was painted on her bow. Gulls followed. Night fell over the sea. Nobody slept."
)


def test_why_leads_from_a_hit_to_its_parts_and_back(tab, at, follow):
    with tab() as page:
        page.goto(f"{at}/?query=who+steers+ships&system=bm25")
        hit = page.locator(".hit[data-doc=pilots]")
        score = hit.locator(".facts span").first.inner_text()
        follow(page, hit.get_by_role("link", name="Why is"))
        assert page.locator("h1").inner_text() == f"Why pilots scores {float(score):g}"
        shown = [float(n.replace("−", "-")) for n in page.locator(".bars > li > * .number").all_inner_texts()]
        assert abs(sum(shown[:2]) - float(score)) < 1e-3
        follow(page, page.get_by_role("link", name="← Results"))
        assert page.locator(".hit[data-doc=pilots]").count() == 1


def test_two_ticked_hits_are_compared(tab, at, follow):
    with tab() as page:
        page.goto(f"{at}/?query=harbour+ship&system=bm25&system=ql")
        page.locator(".hit[data-doc=pilots] input").nth(1).check()
        page.locator(".hit[data-doc=fleet-1] input").nth(1).check()
        assert page.locator(".picks select").input_value() == "ql"  # where they were ticked
        follow(page, page.get_by_role("button", name="Compare 2"))
        assert "system=ql" in page.url
        first = page.locator("h1").inner_text()
        assert {"pilots", "fleet-1"} <= set(first.split())
        follow(page, page.get_by_role("link", name="Swap the two documents"))
        assert page.locator("h1").inner_text() != first
        page.go_back()
        follow(page, page.get_by_role("link", name="pilots alone"))
        assert "Why pilots scores" in page.locator("h1").inner_text()


def test_two_hits_are_compared_without_a_script(tab, at, follow):
    with tab(java_script_enabled=False) as page:
        page.goto(f"{at}/?query=harbour+ship")
        page.locator(".hit input").nth(0).check()
        page.locator(".hit input").nth(2).check()
        follow(page, page.get_by_role("button", name="Compare"))
        assert "What separates them" in page.inner_text("main")
        page.go_back()
        page.locator(".hit input").nth(1).check()
        follow(page, page.get_by_role("button", name="Compare"))
        assert "select two" in page.inner_text("main")


def test_a_movement_is_explained(tab, at, follow):
    with tab() as page:
        page.goto(f"{at}/?query=harbour+ship&system=bm25&system=ql&k=20")
        follow(page, page.locator("a.move").first)
        assert page.locator("h1").inner_text().endswith("moved")
        assert "bm25" in page.inner_text(".answer")


def test_a_ranking_is_explained_and_saved(tab, at, tmp_path, follow):
    with tab() as page:
        page.goto(f"{at}/?query=harbour+ship")
        follow(page, page.get_by_role("link", name="Why this order"))
        assert page.locator("table tbody tr").count() == 5
        for name in ("page", "Markdown", "JSON"):
            with page.expect_download() as saving:
                page.get_by_role("link", name=name, exact=True).click()
            saving.value.save_as(tmp_path / name)
        assert "<script" not in (tmp_path / "page").read_text()
        assert len(json.loads((tmp_path / "JSON").read_text())["documents"]) == 5


def test_a_document_has_its_passages_shaded_with_numbers(tab, at, follow):
    with tab() as page:
        page.goto(f"{at}/?query=harbour+number")
        follow(page, page.locator(".hit[data-doc=voyage] h3 a"))
        numbers = page.locator(".passage .number").all_inner_texts()
        assert len(numbers) > 2
        assert sum("best" in number for number in numbers) >= 1
        best = page.locator(".passage.best .text").first
        assert "s100" in best.get_attribute("class")
        colours = {page.locator(".passage .text").nth(n).evaluate("e => getComputedStyle(e).backgroundColor")
                   for n in range(len(numbers))}  # fmt: skip
        assert len(colours) > 1
        whole = "".join("".join(page.locator(".passage .text").all_inner_texts()).split())
        assert whole == "".join(VOYAGE.split())


def test_an_unknown_document_is_told(tab, at):
    with tab() as page:
        answer = page.goto(f"{at}/document?doc=pilot")
        assert answer.status == 404
        assert 'did you mean "pilots"' in page.inner_text("main")
