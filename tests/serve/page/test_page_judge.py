"""Judging in a real browser: by keys, by forms, after a reload, in two tabs, by two judges."""

from rankhouse.io.trec import read_qrels

ASK = "/judge?query=who+steers+ships%3F&judge=anna&depth=10&system=bm25&system=ql"


def test_keys_judge_and_a_reload_keeps_what_was_said(tab, at, served):
    store = served[0].judgements
    with tab() as page:
        page.goto(at + ASK)
        cards = page.locator(".card")
        for key in ("2", "0", "1"):
            with page.expect_response("**/judge"):
                page.keyboard.press(key)
        page.locator("[data-done]", has_text="3").wait_for()
        ids = [card.get_attribute("data-doc") for card in cards.all()]
        assert store.qrels["q1"] == dict(zip(ids[:3], (2, 0, 1), strict=True))
        assert read_qrels(store.path)["q1"] == store.qrels["q1"]
        assert {entry.systems for entry in store.entries} <= {("bm25", "ql"), ("bm25",), ("ql",)}
        page.reload()
        assert page.locator("[data-done]").inner_text() == "3"
        assert cards.nth(1).locator("[aria-pressed=true]").inner_text().startswith("0")
        assert page.locator(".card.current").get_attribute("data-doc") == ids[3]  # the first that is open
        page.keyboard.press("k")
        with page.expect_response("**/judge"):
            page.keyboard.press("u")
        page.locator("[data-done]", has_text="2").wait_for()
        assert ids[2] not in store.qrels["q1"]
        assert page.locator(".card.current").get_attribute("data-doc") == ids[2]
        assert page.locator(".keys dl").is_visible()
        page.keyboard.press("?")
        assert page.locator(".keys dl").is_hidden()


def test_judging_without_a_script(tab, at, served, follow):
    store = served[0].judgements
    with tab(java_script_enabled=False) as page:
        page.goto(f"{at}/judge")
        page.get_by_label("Question").fill("harbour")
        page.get_by_label("Your name").fill("Bea Ü")
        page.get_by_label("Blind").uncheck()
        follow(page, page.get_by_role("button", name="Start judging"))
        doc = page.locator(".card").nth(1).get_attribute("data-doc")
        assert "bm25+rm3 #" in page.locator(".card").nth(1).inner_text()
        follow(page, page.locator(".card").nth(1).get_by_role("button", name="1"))
        assert page.url.endswith("#document-3")
        assert store.grades("harbour")[doc] == {"Bea Ü": 1}
        assert page.locator("[data-done]").inner_text() == "1"
        follow(page, page.get_by_role("button", name="Undo"))
        assert store.grades("harbour") == {}
        assert page.get_by_role("button", name="Undo").is_disabled()
        page.goto(f"{at}/judge")  # the browser remembers who judges here
        assert page.get_by_label("Your name").input_value() == "Bea Ü"


def test_judging_blind_names_no_system(tab, at):
    with tab() as page:
        page.goto(f"{at}{ASK}&blind=1")
        assert "bm25" not in page.locator(".pool").inner_text()
        order = [card.get_attribute("data-doc") for card in page.locator(".card").all()]
        page.reload()
        assert order == [card.get_attribute("data-doc") for card in page.locator(".card").all()]


def test_function_words_are_not_marked_in_what_is_judged(tab, at):
    with tab(java_script_enabled=False) as page:
        page.goto(f"{at}/judge?query=which+pilots+steer+them&judge=marks&system=bm25&depth=5")
        marked = {text.lower() for text in page.locator(".card mark").all_inner_texts()}
        assert "pilots" in marked
        assert not marked & {"which", "them"}


def test_two_tabs_lose_nothing(tab, at, served):
    store = served[0].judgements
    with tab() as one, tab() as other:
        for page, judge in ((one, "anna"), (other, "ben")):
            page.goto(at + ASK.replace("anna", judge))
        for keys in ("22", "11", "01", "22"):
            for page, key in zip((one, other), keys, strict=True):
                with page.expect_response("**/judge"):
                    page.keyboard.press(key)
        with tab() as same:  # a second tab of the same judge
            same.goto(at + ASK)
            with same.expect_response("**/judge"):
                same.keyboard.press("1")
    ids = [entry.doc_id for entry in store.entries if entry.judge == "ben"]
    assert len(ids) == 4
    assert len(store.qrels_of("anna")["q1"]) == 5
    with tab() as page:
        page.goto(f"{at}/queries")
        text = page.inner_text("main")
        assert "anna, ben" in text
        assert "kappa" in text
        page.get_by_text("Where they differ").click()
        assert "anna 0" in page.inner_text("main details")


def test_what_cannot_be_kept_is_said(tab, at, served):
    with tab() as page:
        page.goto(at + ASK)
        page.evaluate("document.querySelector('.card form').judge.value = ''")
        page.evaluate("document.querySelector('.card [name=mark]').value = '7 1 pilots'")
        page.locator(".card [name=mark]").first.click()
        page.locator(".said", has_text="Not saved").wait_for()
        assert page.locator("[data-done]").inner_text() == "0"
    assert served[0].judgements.entries == ()


def test_a_service_that_only_reads_says_so(folder, running, browser):
    from rankhouse.serve.host.service import open_service
    from rankhouse.serve.host.settings import ServeOptions

    service = open_service(ServeOptions(indexes={"ships": folder / "index"}, port=0))
    with running(service) as client:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{client.port}/judge")
        assert "--judgements FILE" in page.inner_text("main")
        page.close()


def test_keys_after_the_last_document_grade_nothing(tab, at, served):
    """They graded the last one again, and again."""
    store = served[0].judgements
    with tab() as page:
        page.goto(at + ASK)
        cards = page.locator(".card")
        ids = [card.get_attribute("data-doc") for card in cards.all()]
        page.keyboard.press("j")  # the first is left out
        for _ in ids[1:]:
            with page.expect_response("**/judge"):
                page.keyboard.press("1")
        page.locator("[data-done]", has_text=str(len(ids) - 1)).wait_for()
        assert page.locator(".card.current").get_attribute("data-doc") == ids[0]
        with page.expect_response("**/judge"):
            page.keyboard.press("2")
        page.locator(".said", has_text="All documents are judged").wait_for()
        assert page.locator("#end h2").inner_text() == f"All {len(ids)} documents are judged"
        assert page.evaluate("document.activeElement.id") == "end"
        assert page.locator(".card.current").count() == 0
        page.keyboard.press("0")
        page.keyboard.press("0")
        page.reload()
        page.keyboard.press("0")
        assert page.locator("[data-done]").inner_text() == str(len(ids))
        assert store.qrels_of("anna")["q1"] == {doc: 2 if doc == ids[0] else 1 for doc in ids}
        assert len(store.entries) == len(ids)
        page.keyboard.press("j")  # who goes to a document may grade it again
        with page.expect_response("**/judge"):
            page.keyboard.press("0")
        assert store.qrels_of("anna")["q1"][ids[0]] == 0


def test_a_grade_of_another_tab_is_not_overwritten_unseen(tab, at, served):
    store = served[0].judgements
    with tab() as one, tab() as other:
        for page in (one, other):
            page.goto(at + ASK)
        doc = one.locator(".card").first.get_attribute("data-doc")
        for key in ("2", "1"):
            with one.expect_response("**/judge"):
                one.keyboard.press(key)
        with other.expect_response("**/judge") as answer:
            other.keyboard.press("0")
        assert answer.value.status == 409
        told = f'Not saved: since this page was opened you graded it 2 in another window (document "{doc}")'
        other.locator(".said", has_text=told).wait_for()
        assert store.qrels_of("anna")["q1"][doc] == 2
        other.reload()
        with other.expect_response("**/judge"):
            other.locator(".card").first.get_by_role("button", name="0").click()  # having seen it
        assert store.qrels_of("anna")["q1"][doc] == 0
        other.locator(".card").first.get_by_role("button", name="1").click()  # and once more in this one
        other.locator('.card:first-child [aria-pressed=true][data-grade="1"]').wait_for()


def test_a_form_without_a_script_is_refused_too(tab, at, served, follow):
    with tab(java_script_enabled=False) as one, tab(java_script_enabled=False) as other:
        for page in (one, other):
            page.goto(at + ASK)
        follow(one, one.locator(".card").first.get_by_role("button", name="2"))
        follow(other, other.locator(".card").first.get_by_role("button", name="0"))
        assert "ince this page was opened you graded it 2" in other.inner_text("main")
    assert [entry.grade for entry in served[0].judgements.entries] == [2]


def test_a_document_is_skipped_and_the_end_says_what_is_left(tab, at, served):
    with tab() as page:
        page.goto(at + ASK)
        ids = [card.get_attribute("data-doc") for card in page.locator(".card").all()]
        page.keyboard.press("s")
        assert page.locator(".card.current").get_attribute("data-doc") == ids[1]
        page.locator(".card").nth(1).get_by_role("link", name="Skip").click()
        for _ in ids[2:]:
            page.keyboard.press("s")
        assert page.evaluate("document.activeElement.id") == "end"
        assert (
            page.locator("#end h2").inner_text() == f"{len(ids)} of {len(ids)} documents are not judged yet"
        )
        assert served[0].judgements.entries == ()
        page.locator("#end").get_by_role("link", name="Next question").click()
        page.wait_for_url("**/judge?query=q2**")


def test_a_comment_is_kept_beside_the_grade_and_can_be_undone(tab, at, served, follow):
    store = served[0].judgements
    with tab() as page:
        page.goto(at + ASK)
        card = page.locator(".card").first
        doc = card.get_attribute("data-doc")
        with page.expect_response("**/judge"):
            page.keyboard.press("2")
        page.keyboard.press("k")
        page.keyboard.press("c")
        page.keyboard.type("2nd half only")  # digits in the box are text
        with page.expect_response("**/judge"):
            page.keyboard.press("Enter")
        page.locator(".said", has_text="Comment saved").wait_for()
        assert store.comments_of("anna", "q1") == {doc: "2nd half only"}
        assert store.qrels_of("anna")["q1"] == {doc: 2}
        page.reload()
        assert card.get_by_label("Comment on").input_value() == "2nd half only"
        with page.expect_response("**/judge"):
            page.get_by_role("button", name="Undo").click()
        page.locator(".said", has_text="Undone").wait_for()
        assert card.get_by_label("Comment on").input_value() == ""
        assert store.comments_of("anna", "q1") == {}
        assert store.qrels_of("anna")["q1"] == {doc: 2}
    with tab(java_script_enabled=False) as page:
        page.goto(at + ASK)
        card = page.locator(".card").nth(1)
        card.locator("summary", has_text="Comment").click()
        card.get_by_label("Comment on").fill("off topic")
        follow(page, card.get_by_role("button", name="Save"))
        assert page.url.endswith("#document-2")
        assert list(store.comments_of("anna", "q1").values()) == ["off topic"]


def test_two_windows_of_one_judge_know_of_each_other(tab, at):
    with tab() as one:
        one.goto(at + ASK)
        assert one.locator(".twin").is_hidden()
        other = one.context.new_page()
        other.goto(at + ASK)
        for page in (one, other):
            page.locator(".twin").wait_for()
        with one.expect_response("**/judge"):
            one.keyboard.press("2")
        other.locator("[data-done]", has_text="1").wait_for()
        other.locator('.card:first-child [data-grade="2"][aria-pressed=true]').wait_for()
        with other.expect_response("**/judge") as answer:  # seen, so it may be changed here
            other.locator(".card").first.get_by_role("button", name="0").click()
        assert answer.value.status == 200
        other.goto(f"{at}/queries")
        one.locator(".twin").wait_for(state="hidden")


def test_the_question_and_the_keys_stay_in_sight(tab, at):
    with tab(viewport={"width": 1280, "height": 700}) as page:
        page.goto(at + ASK)
        for _ in range(4):
            page.keyboard.press("j")
        card = page.locator(".card.current").bounding_box()
        assert card["y"] >= 0
        assert card["y"] + card["height"] <= 700
        for place in (".need h1", "[data-done]", ".keys dl"):
            assert page.locator(place).bounding_box()["y"] >= 0
            assert page.evaluate("s => document.querySelector(s).checkVisibility()", place)


def test_markdown_is_judged_as_people_read_it(tab, at):
    """Its signs were shown: fences, brackets of links, bars of tables."""
    with tab(java_script_enabled=False) as page:
        page.goto(f"{at}/judge?query=beacons+lit+by+keepers&judge=anna&system=bm25&depth=5")
        text = page.locator(".card[data-doc='guide.md'] .text")
        assert text.locator("pre").inner_text().startswith("beacon --light\n    --bright <now>")
        assert text.locator("td").all_inner_texts() == ["whale", "9"]
        assert not {"```", "](", "|", "introduced_in"} & {*text.inner_text().split()}
        assert "Beacons are lit by keepers" in " ".join(text.locator(".here").all_inner_texts())
        assert {"Beacons", "keepers"} <= {*text.locator(".here mark").all_inner_texts()}
        assert text.locator("h2").count() == 1  # no link leads away from a task that is half done
        assert text.locator("a[href]").count() == 0


def test_a_long_text_is_shown_around_its_best_passage(tab, at):
    """One that stood beyond the first 20,000 characters was not shown at all."""
    with tab() as page:
        page.goto(f"{at}/judge?query=who+hung+the+lantern&judge=anna&system=bm25&depth=5")
        card = page.locator(".card[data-doc=chronicle]")
        assert "A lantern was hung at the gate." in card.locator("> .text .here").inner_text()
        assert len(card.locator("> .text").inner_text()) < 2_500
        page.keyboard.press("o")
        more = card.locator(".whole .text")
        assert "A lantern was hung at the gate." in more.locator(".here").inner_text()
        assert more.inner_text().count("…") == 2
        link = card.get_by_role("link", name="Open the document")
        with page.context.expect_page() as opened:
            link.click()
        assert "A lantern was hung" in opened.value.locator("#here").inner_text()


def test_of_a_long_list_the_item_that_was_found_is_marked():
    from rankhouse.core.nouns import Document
    from rankhouse.serve.page.document import sections
    from rankhouse.serve.page.judge import _around

    items = [f"* [`{n}`](https://example.org/{n}) entry {n}\n" for n in range(900)]
    text = "# Changes\n\n" + "".join(items)
    document, at = Document("log.md", text), text.index("* [`700`]")
    found = at, at + len(items[700])
    first, end = _around(document, found, (100, 200))
    assert text[first:].startswith("* [`")
    assert end - first < 500
    [shown] = sections(document, (first, end), found)
    assert not shown.is_here
    [item] = [part for part in str(shown.html).split("<li") if part.startswith(' class="here"')]
    assert "entry 700</li>" in item
