"""Runs and trainings in a real browser: compared with significance, trained, watched, ended, a column."""

import json

import pytest

from rankhouse.io.trec import read_run


def test_systems_are_compared_and_lead_to_the_questions(tab, at, tmp_path, follow, grown):
    with tab() as page:
        page.goto(f"{at}/runs")
        for name in ("bm25", "ql"):
            page.get_by_label(name, exact=True).check(force=True)
        page.get_by_label("Measures").fill("AP nDCG@10")
        follow(page, page.get_by_role("button", name="Compare"))
        grown(page, "table")  # the systems' runs are made, then all is shown
        assert page.locator("table").first.locator("tbody tr").count() == 2
        assert "randomization" in page.inner_text("main")
        assert "due to chance; judge 10 or more" in page.locator(".notes").inner_text()
        assert page.locator(".differences li").count() == 2
        with page.expect_download() as saving:
            page.get_by_role("link", name="JSON").click()
        saving.value.save_as(tmp_path / "runs.json")
        told = json.loads((tmp_path / "runs.json").read_text())
        assert {row["query"] for row in told["queries"]} == {"q1", "q2"}
        with page.expect_download() as saving:
            page.get_by_role("link", name="run of ql").click()
        saving.value.save_as(tmp_path / "ql.run")
        assert set(read_run(tmp_path / "ql.run")) == {"q1", "q2"}
        follow(page, page.locator(".differences a").first)
        assert page.locator(".columns h2").all_inner_texts() == ["bm25", "ql"]


def test_another_baseline_and_three_systems(tab, at, follow, grown):
    with tab() as page:
        page.goto(f"{at}/runs?system=bm25&system=ql&system=bm25%2Brm3&baseline=ql")
        grown(page, "table")
        assert "against ql" in " ".join(page.locator("h2").all_inner_texts())
        follow(page, page.locator(".crumbs").get_by_role("link").last)
        grown(page, "table")
        assert "bm25+rm3 against ql" in " ".join(page.locator("h2").all_inner_texts())


def test_a_run_is_told_from_a_system_and_a_cut_table_has_a_shadow(folder, tmp_path, running, browser, grown):
    from rankhouse.serve.host.service import open_service
    from rankhouse.serve.host.settings import ServeOptions

    (tmp_path / "mine.run").write_text("q1 Q0 pilots 1 2.0 mine\nq2 Q0 tides 1 1.0 mine\n")
    service = open_service(
        ServeOptions(indexes={"ships": folder / "index"}, queries=folder / "queries.jsonl", port=0,
                     qrels=folder / "qrels.txt", runs={"mine": tmp_path / "mine.run"})
    )  # fmt: skip
    with running(service) as client, browser.new_page(viewport={"width": 320, "height": 640}) as page:
        page.goto(f"http://127.0.0.1:{client.port}/runs?system=mine&system=bm25")
        grown(page, "table")
        assert page.get_by_role("group", name="Runs").get_by_role("checkbox").count() == 1
        assert page.get_by_role("group", name="Systems").get_by_label("mine").count() == 0
        assert "mine (run)" in page.get_by_label("Baseline").inner_text()
        table = page.locator(".scroll").first
        assert table.evaluate("e => e.scrollWidth > e.clientWidth")
        assert (
            table.evaluate("e => getComputedStyle(e).backgroundAttachment") == "local, local, scroll, scroll"
        )


def test_runs_are_compared_without_a_script(tab, at, grown):
    with tab(java_script_enabled=False) as page:
        page.goto(f"{at}/runs?system=bm25&system=ql")
        grown(page, "table")  # the browser asks again by itself
        assert page.locator("table").count() == 2


@pytest.mark.parametrize(("asked", "said"), [
    ("system=bm25&measures=nonsense", "nonsense"),
    ("system=bm25&system=nobody", "nobody"),
    ("system=bm25&test=luck", "luck"),
])  # fmt: skip
def test_what_cannot_be_compared_is_told(asked, said, tab, at):
    with tab() as page:
        assert page.goto(f"{at}/runs?{asked}").status in (404, 422)
        assert said in page.inner_text("main")


def test_a_ranker_is_trained_and_becomes_a_column(tab, at, follow):
    pytest.importorskip("torch")
    with tab() as page:
        page.goto(f"{at}/train")
        page.get_by_label("Name").fill("mine")
        page.get_by_label("Start from").select_option("knrm")
        page.get_by_label("Epochs").fill("2")
        begun = follow(page, page.get_by_role("button", name="Train"))
        assert 'class="against state running"' in begun.text()
        page.locator("h2 .state.done").wait_for(timeout=600_000)  # followed by the page itself
        page.wait_for_load_state()
        assert page.locator(".curve svg polyline").count() >= 1
        [note] = page.locator(".notes li").all_inner_texts()
        assert note.startswith("Only 2 questions with a relevant document: none were held out")
        assert note.endswith("judge 10 or more.")
        follow(page, page.get_by_role("link", name="Search with it"))
        page.get_by_label("Question").fill("ship")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert page.locator(".columns h2").all_inner_texts() == ["bm25", "mine"]


def test_a_training_is_ended_without_a_script(tab, at, follow):
    pytest.importorskip("torch")
    with tab(java_script_enabled=False) as page:
        page.goto(f"{at}/train")
        page.get_by_label("Epochs").fill("1000")
        follow(page, page.get_by_role("button", name="Train"))
        follow(page, page.get_by_role("button", name="Cancel"))
        assert page.locator("h2 .state").inner_text() == "cancelled"


def test_what_cannot_be_trained_is_told(tab, at, follow):
    with tab() as page:
        page.goto(f"{at}/train")
        page.get_by_label("Name").fill("a b/..")
        follow(page, page.get_by_role("button", name="Train"))
        assert "letters" in page.inner_text("main")
        assert page.get_by_role("link", name="← Back").count() == 1


def test_a_chart_says_its_values_under_the_pointer_and_by_arrow_keys(tab, at, served, grown):
    served[0].judgements.judge("anna", "<script>alert(1)</script> hostile", "pilots", 1)
    with tab() as page:
        page.goto(f"{at}/runs?system=bm25&system=ql&measures=AP")
        grown(page, "[data-chart]")
        figure = page.locator("[data-chart]")
        assert figure.locator("polyline").count() == 2
        before = figure.locator("figcaption").inner_text()
        assert before.startswith("AP of each run")
        figure.locator("svg").hover()
        assert figure.locator("figcaption").inner_text().startswith("Place 2 · bm25 ")
        figure.focus()
        page.keyboard.press("ArrowRight")
        assert figure.locator("figcaption").inner_text().startswith("Place 3 · bm25 ")
        page.locator("h1").click()
        page.mouse.move(0, 0)
        assert figure.locator("figcaption").inner_text() == before


def test_curves_of_trainings_stand_in_one_chart():
    import msgspec

    from rankhouse.serve.judging.training import TrainingJob, TrainingRequest
    from rankhouse.serve.page.train import curve_of, overlay_of

    def job(name, *values):
        checks = tuple(
            {"step": 10 * n, "value": value, "first_stage": 0.2, "measure": "AP"}
            for n, value in enumerate(values, 1)
        )
        losses = tuple({"step": n, "loss": 1 / n} for n in range(1, 1000))
        return TrainingJob(TrainingRequest(name), "done", "", log=losses + checks)

    one, two = job("one", 0.1, 0.5, 0.25), job("two", 0.2, 0.4)
    curve = curve_of(one.log)
    assert [line.kind for line in curve.lines] == ["loss", "value"]
    assert len(curve.lines[0].points.split()) <= 335
    assert [dot[1] for dot in curve.lines[1].dots] == [174.0, 14.0, 114.0]
    told = msgspec.json.decode(curve.data)
    place = told["at"].index("Step 10")
    assert [(name, texts[place]) for name, texts in told["lines"]] == [("loss", "0.1000"), ("AP", "0.1000")]
    assert "best AP on held-out questions 0.5000 at step 20, first stage 0.2000" in curve.sentence
    assert overlay_of([one]) is None
    both = overlay_of([one, two, job("none")])
    assert [line.name for line in both.lines] == ["one", "two"]
    assert "one 0.5000, two 0.4000" in both.sentence


def test_heads_of_the_list_order_it_and_a_choice_filters_at_once(tab, at, follow):
    with tab() as page:
        page.goto(f"{at}/queries")
        for wanted, first in (("descending", "q2"), ("ascending", "q3")):
            follow(page, page.get_by_role("columnheader", name="Relevant").get_by_role("link"))
            assert page.get_by_role("columnheader", name="Relevant").get_attribute("aria-sort") == wanted
            assert page.locator("tbody th small").first.inner_text() == first
        with page.expect_navigation():
            page.get_by_label("Show").select_option("open")
        assert page.locator("tbody th small").all_inner_texts() == ["q3"]
        page.get_by_label("Find").fill("zzz")
        follow(page, page.get_by_role("button", name="Filter"))
        assert "No question matches" in page.inner_text("main")
