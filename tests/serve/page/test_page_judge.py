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
        page.keyboard.press("?")
        assert page.locator(".keys dl").is_visible()


def test_judging_without_a_script(tab, at, served, follow):
    store = served[0].judgements
    with tab(java_script_enabled=False) as page:
        page.goto(f"{at}/judge")
        page.get_by_label("Question").fill("harbour")
        page.get_by_label("Your name").fill("Bea Ü")
        page.get_by_label("Blind").uncheck()
        follow(page, page.get_by_role("button", name="Judge"))
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
        page.evaluate("document.querySelector('#judging').judge.value = ''")
        page.evaluate("document.querySelector('.card button').value = '7 1 pilots'")
        page.locator(".card button").first.click()
        page.locator(".said", has_text="Not kept").wait_for()
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
        page.locator(".said", has_text="All are judged").wait_for()
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
        told = f'Not kept: since this page was opened you graded it 2 in another window (document "{doc}")'
        other.locator(".said", has_text=told).wait_for()
        assert store.qrels_of("anna")["q1"][doc] == 2
        other.reload()
        other.locator(".card").first.get_by_role("button", name="0").click()  # having seen it
        other.locator("[data-done]", has_text="2").wait_for()
        assert store.qrels_of("anna")["q1"][doc] == 0
        other.locator(".card").first.get_by_role("button", name="1").click()  # and once more in this one
        other.locator('.card:first-child [aria-pressed=true][data-grade="1"]').wait_for()


def test_a_form_without_a_script_is_refused_too(tab, at, served, follow):
    with tab(java_script_enabled=False) as one, tab(java_script_enabled=False) as other:
        for page in (one, other):
            page.goto(at + ASK)
        follow(one, one.locator(".card").first.get_by_role("button", name="2"))
        other.locator(".card").first.get_by_role("button", name="0").click()
        assert "ince this page was opened you graded it 2" in other.inner_text("main")
    assert [entry.grade for entry in served[0].judgements.entries] == [2]
