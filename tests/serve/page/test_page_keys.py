"""The page where keys are needed: signing in, a key that only reads, and pages for what went wrong."""

import pytest

KEY, READER = "correct-horse-battery-staple", "reader-of-everything-else"


@pytest.fixture
def options(folder, tmp_path):
    """A service with two keys, one of them for reading."""
    from rankhouse.serve.host.settings import ServeOptions

    keys = tmp_path / "keys.txt"
    keys.write_text(f"anna {KEY}\nrobot {READER} read\n")
    keys.chmod(0o600)
    return ServeOptions(
        indexes={"ships": folder / "index"}, judgements=tmp_path / "judged.txt", key_file=keys, port=0
    )


def sign_in(page, at, key, follow):
    page.goto(f"{at}/?query=ship")
    page.get_by_label("Key").fill(key)
    follow(page, page.get_by_role("button", name="Sign in"))


def test_a_key_opens_the_page_and_names_the_judge(tab, at, served, follow):
    with tab() as page:
        sign_in(page, at, "wrong-wrong-wrong-wrong", follow)
        assert "key is not valid" in page.inner_text("[role=alert]")
        box = page.get_by_label("Key")
        assert box.evaluate("e => getComputedStyle(e).borderRadius") != "0px"  # the style sheet came along
        box.fill(KEY)
        follow(page, page.get_by_role("button", name="Sign in"))
        assert page.locator(".hit").count() > 1
        page.goto(f"{at}/judge")
        assert page.get_by_label("Your name").input_value() == "anna"
        follow(page, page.get_by_role("button", name="Sign out"))
        page.goto(f"{at}/judge")
        assert page.get_by_label("Key").count() == 1


@pytest.mark.parametrize("script", [True, False])
def test_a_reading_key_sees_everything_and_judges_nothing(script, tab, at, served, follow):
    with tab(java_script_enabled=script) as page:
        sign_in(page, at, READER, follow)
        page.goto(f"{at}/judge?query=ship&judge=robot&depth=5&system=bm25")
        assert page.locator(".card").count() == 5
        assert page.locator(".scale button:not(:disabled)").count() == 0
        assert "can read but not judge" in page.inner_text("main")
    assert served[0].judgements.entries == ()


def test_the_sign_in_page_is_accessible(tab, at, axe):
    for scheme in ("light", "dark"):
        with tab(axe=True, color_scheme=scheme, viewport={"width": 320, "height": 600}) as page:
            page.goto(at)
            page.evaluate(axe)
            assert page.evaluate("axe.run(document).then(r => r.violations.map(v => v.id))") == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_a_page_that_is_not_there_is_told_to_people_and_to_programs(tab, at, served, follow):
    import http.client

    with tab() as page:
        sign_in(page, at, KEY, follow)
        assert page.goto(f"{at}/nothing<script>").status == 404
        assert page.locator("h1").inner_text() == "Not found"
    connection = http.client.HTTPConnection(at.removeprefix("http://"))
    connection.request("GET", "/nothing", headers={"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    connection.close()
