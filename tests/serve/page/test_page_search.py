"""Search in a real browser: systems side by side, what moved, keys, files, all of it without a script."""

import json

import msgspec
import pytest

from rankhouse.serve.folder.files import READING, FolderProgress
from rankhouse.serve.host.service import Phase


def test_systems_stand_side_by_side_and_say_what_moved(tab, at):
    with tab() as page:
        page.goto(at)
        page.get_by_label("Question").fill("ship harbour")
        page.get_by_text("Compare systems").click()
        page.get_by_label("ql", exact=True).check(force=True)
        with page.expect_navigation(url="**/?query=*"):
            page.keyboard.press("Enter")
        assert page.locator(".columns h2").all_inner_texts() == ["bm25", "ql"]
        first, second = (page.locator(".columns > section").nth(n).locator(".hit") for n in (0, 1))
        assert first.count() == second.count() == 10
        ids = [[hit.get_attribute("data-doc") for hit in column.all()] for column in (first, second)]
        for place, doc in enumerate(ids[1]):
            seen = second.nth(place).locator(".move").inner_text()
            before = ids[0].index(doc) if doc in ids[0] else None
            step = None if before is None else before - place
            sign = "new" if step is None else "=" if step == 0 else f"{'↑' if step > 0 else '↓'}{abs(step)}"
            assert seen.startswith(sign)
        gone = [doc for doc in ids[0] if doc not in ids[1]]
        assert page.locator(".absent li").count() == len(gone)
        assert page.locator(".hit mark").first.inner_text().lower().startswith(("ship", "harbour"))
        assert page.locator(".hit[data-doc=pilots] h3 mark").first.inner_text() == "Harbour"


def test_no_more_than_four_systems(tab, at):
    with tab() as page:
        answer = page.goto(f"{at}/?query=ship" + "".join(f"&system=s{n}" for n in range(5)))
        assert answer.status == 422
        assert "choose at most 4" in page.inner_text("main")


def test_an_unknown_system_leaves_the_form_and_names_those_there_are(tab, at):
    with tab() as page:
        answer = page.goto(f"{at}/?query=ship&system=bm26")
        assert answer.status == 404
        assert 'did you mean "bm25"' in page.inner_text("main")
        assert page.get_by_label("Question").input_value() == "ship"


def test_keys_walk_over_the_hits(tab, at):
    with tab() as page:
        page.goto(f"{at}/?query=ship")
        page.keyboard.press("j")
        page.keyboard.press("j")
        assert page.locator(".hit.here .rank").inner_text() == "2"
        assert (
            page.evaluate("document.activeElement.closest('.hit').querySelector('.rank').textContent") == "2"
        )
        page.keyboard.press("x")
        assert page.locator(".hit.here input[name=doc]").is_checked()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "query"
        page.keyboard.type("/j")  # in the box these are letters
        assert page.get_by_label("Question").input_value() == "/j"
        page.locator(".hit h3 a").first.focus()
        page.keyboard.press("?")
        assert page.locator(".keys dl").is_visible()
        page.get_by_role("button", name="Turn keys off").click()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") != "query"
        page.reload()
        page.keyboard.press("j")
        assert page.locator(".hit.here").count() == 0  # they stay off


def test_search_without_a_script(tab, at, follow):
    with tab(java_script_enabled=False) as page:
        page.goto(at)
        page.get_by_label("Question").fill("who steers ships?")
        follow(page, page.get_by_role("button", name="Search"))
        assert page.locator(".hit").count() > 1
        assert page.locator(".hit", has_text="Harbour pilots").locator(".grade").count() == 1  # judged before


def test_a_view_is_saved_as_one_file(tab, at, tmp_path):
    with tab() as page:
        page.goto(f"{at}/?query=ship&system=bm25&system=ql")
        with page.expect_download() as saving:
            page.get_by_role("link", name="page", exact=True).click()
        saving.value.save_as(tmp_path / "saved.html")
        text = (tmp_path / "saved.html").read_text()
        assert "<script" not in text
        assert "href=" not in text
        assert "<form" not in text.replace('<form action="/why"', "")
        assert ".hit {" in text
        with page.expect_download() as saving:
            page.get_by_role("link", name="JSON").click()
        saving.value.save_as(tmp_path / "search.json")
        first, second = json.loads((tmp_path / "search.json").read_text())
        assert (first["system"], second["system"]) == ("bm25", "ql")
        with page.expect_download() as saving:
            page.get_by_role("link", name="run of ql").click()
        saving.value.save_as(tmp_path / "ql.run")
        ids = [line.split()[2] for line in (tmp_path / "ql.run").read_text().splitlines()]
        assert ids == [hit["doc_id"] for hit in second["hits"]]


def test_the_first_page_is_small(at, tab):
    answers = []
    with tab() as page:
        page.on("response", lambda answer: answers.append(answer))  # noqa: PLW0108 - marked by playwright
        page.goto(at)
        page.wait_for_load_state("networkidle")
        sizes = [len(answer.body()) for answer in answers]
    assert len(sizes) >= 3
    assert sum(sizes) <= 38_000


def test_results_appear_while_one_types(tab, at):
    with tab() as page:
        page.goto(at)
        box = page.get_by_label("Question")
        box.press_sequentially("harbour pilo")
        page.wait_for_selector(".hit")
        assert page.locator("h1.greeting").count() == 0
        assert page.get_by_role("status").first.inner_text().endswith("documents")
        assert "query=harbour+pilo" in page.url
        box.press_sequentially("ts")
        page.wait_for_selector(".hit h3 mark >> text=pilots")
        assert page.evaluate("document.activeElement.id") == "query"
        box.fill("harbour pilots xyzzyxyzzy")
        page.wait_for_url("**xyzzyxyzzy**")
        assert page.locator(".hit").count() > 1
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("j")
        assert page.locator(".hit.here .rank").inner_text() == "1"
        page.keyboard.press("x")
        page.keyboard.press("j")
        page.keyboard.press("x")
        assert page.get_by_role("button", name="Compare 2").is_visible()
        page.keyboard.press("?")
        assert page.get_by_role("button", name="Turn keys off").is_visible()


@pytest.mark.parametrize("is_compared", [True, False])
def test_nothing_is_asked_while_one_types_but_of_the_quick_system(is_compared, tab, at):
    """Of two that are compared, or of another one that was ticked."""
    with tab() as page:
        page.goto(f"{at}/?query=ship&system=bm25&system=ql" if is_compared else at)
        if not is_compared:
            page.get_by_text("Compare systems").click()
            page.locator("input[name=system]:checked").uncheck(force=True)
            page.locator("input[name=system][value=ql]").check(force=True)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.get_by_label("Question").press_sequentially(" ship harbour")
        page.wait_for_timeout(600)
        assert [one for one in asked if "query=" in one] == []


def test_a_late_answer_leaves_a_list_that_is_being_read(tab, at):
    """The hit that had the focus was replaced, and the focus lost."""
    with tab() as page:
        page.goto(f"{at}/?query=ship")
        late = []
        page.route("**/?query=*", lambda route: late.append(route))  # noqa: PLW0108 - marked by playwright
        page.get_by_label("Question").press_sequentially("harbour ")
        page.wait_for_timeout(600)
        page.locator(".hit h3 a").first.focus()
        late[-1].continue_()
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(300)
        assert page.evaluate("document.activeElement.closest('.hit') !== null")
        assert "harbour" not in page.url


@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_page_of_files_being_read_follows_and_becomes_the_search_page(served, tab, has_scripts):
    service, at = served
    service.phase, reading = Phase.STARTING, FolderProgress(READING, 0.25, files=5, of_files=8, size=4_000)
    service.standing = reading
    with tab(java_script_enabled=has_scripts, viewport={"width": 320, "height": 600}) as page:
        loads = []
        page.on("load", lambda one: loads.append(one))  # noqa: PLW0108 - marked by playwright
        page.goto(f"{at}/?query=ship")
        assert page.text_content("main p >> nth=1").split("\n") == ["5 of 8 files read", "1.0 kB of 4.0 kB"]
        assert page.locator("progress").bounding_box()["width"] == 288
        service.standing = msgspec.structs.replace(reading, share=0.5, files=6, seconds_left=9.0)
        page.wait_for_selector("text=2.0 kB of 4.0 kB, about 9 s left")
        assert (len(loads) == 1) == has_scripts
        service.standing, service.phase = FolderProgress(), Phase.READY
        page.wait_for_selector(".hit")
        assert page.url == f"{at}/?query=ship"


def test_why_an_order_fits_a_narrow_window(tab, at):
    with tab(viewport={"width": 320, "height": 600}) as page:
        page.goto(f"{at}/why?index=ships&system=bm25&query=ship&top=5")
        table = page.locator(".ranking .scroll")
        assert table.evaluate("e => e.scrollWidth <= e.clientWidth")
        names, first = (table.locator("tr").nth(row).locator("th, td").all() for row in (0, 1))
        assert len(names) == len(first) >= 5
        for name, cell in zip(names, first, strict=True):
            assert name.bounding_box()["x"] == cell.bounding_box()["x"], "a name stands above its cells"
