"""Every page: hostile texts run nothing, axe-core has no complaint, 320 px and the keyboard suffice."""

from urllib.parse import quote, urlencode
from urllib.request import urlopen

import pytest

from rankhouse.serve.search.systems import NamedSystem
from rankhouse.systems.system import Lexical

HERE = {"index": "ships"}
BOTH = [("system", "bm25"), ("system", "ql")]
VIEWS = {
    "home": "/",
    "search": "/?" + urlencode([("query", "ship harbour"), *BOTH]),
    "nothing": "/?query=zzz",
    "setup": "/judge",
    "judge": "/judge?" + urlencode([("query", "ship harbour"), ("judge", "anna"), ("depth", 10), *BOTH]),
    "queries": "/queries",
    "runs": "/runs",
    "compared": "/runs?system=bm25&system=ql",
    "train": "/train",
    "collection": "/collection?query=ship",
    "why": "/why?query=ship+harbour&system=bm25&doc=fleet-1",
    "above": "/why?query=ship+harbour&system=bm25%2Brm3&doc=fleet-1&doc=pilots",
    "order": "/why?query=ship+harbour&system=ql&top=3",
    "moved": "/why?query=ship+harbour&system=ql&before=bm25&doc=pilots",
    "document": "/document?doc=voyage",
    "passages": "/document?query=ship+harbour&system=bm25&doc=voyage",
    "piece": "/document?query=lantern&system=bm25&doc=chronicle&at=9000",
    "markdown": "/document?query=beacon&system=bm25&doc=guide.md&end=90",
    "restructured": "/document?query=foghorn&system=bm25&doc=foghorn.rst&end=90",
    "nowhere": "/?query=walruses",
    "error": "/queries?page=99",
}
RUN_AXE = """() => axe.run({resultTypes: ['violations'], runOnly: [
    'wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'
]})"""
UNSAVED = {"home", "nothing", "nowhere", "setup", "runs", "train", "error"}
LIVE = "form, button, input:not(.pick), select, script, link, iframe, img, [href]:not([href^='#'])"
COUNT = """() => [...document.querySelectorAll(
    'a[href], button:not(:disabled), input:not([type=hidden], [type=radio]), input:checked, select, summary'
)].filter(e => e.checkVisibility()).length"""
FOCUS = """() => {
    const e = document.activeElement;
    if (e === document.body) return null;
    window.seen ??= [];
    if (!window.seen.includes(e)) window.seen.push(e);
    const styles = [e, e.nextElementSibling].filter(Boolean).map(x => getComputedStyle(x));
    const outlined = e.matches('[tabindex="-1"]') || styles.some(s => s.outlineStyle !== 'none');
    return [window.seen.indexOf(e), outlined, e.outerHTML.slice(0, 100)];
}"""


@pytest.fixture(scope="module")
def served(options_for, running, tmp_path_factory):
    """One service for all that only looks; two judges have been there."""
    from rankhouse.serve.host.service import open_service

    service = open_service(options_for(tmp_path_factory.mktemp("judged")))
    service.judgements.judge("anna", "who steers ships?", "pilots", 1)
    service.judgements.judge("ben", "who steers ships?", "pilots", 2)
    with running(service) as client:
        at = f"http://127.0.0.1:{client.port}"
        ran(at, "bm25", "ql")
        yield service, at


def ran(at, *systems):
    """Have systems answer the judged questions, so that no page of runs loads itself again under a test."""
    for name in systems:
        with urlopen(f"{at}/runs?system={quote(name, safe='')}&export=run") as answer:
            answer.read()


@pytest.fixture(scope="module")
def at(served):
    """The address of the service."""
    return served[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", VIEWS)
def test_axe_has_no_complaint(name, scheme, tab, at, axe):
    for width in (1280, 320) if scheme == "light" else (1280,):
        with tab(axe=True, color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
            page.goto(at + VIEWS[name])
            page.evaluate(axe)
            found = page.evaluate(RUN_AXE)
            told = [
                (v["id"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"]) for v in found["violations"]
            ]
            assert told == [], width


@pytest.mark.parametrize("name", VIEWS)
def test_320_pixels_suffice(name, tab, at):
    with tab(viewport={"width": 320, "height": 640}) as page:
        page.goto(at + VIEWS[name])
        assert page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("name", VIEWS)
def test_the_keyboard_reaches_everything_and_shows_where_it_is(name, tab, at):
    with tab() as page:
        page.goto(at + VIEWS[name])
        page.evaluate("document.activeElement.blur()")
        wanted = page.evaluate(COUNT)
        reached = set()
        for _ in range(wanted + 10):
            page.keyboard.press("Tab")
            if (found := page.evaluate(FOCUS)) is not None:
                number, is_outlined, html = found
                assert is_outlined, html
                reached.add(number)
        assert len(reached) >= wanted


def test_hostile_texts_run_nothing(tab, at, attacks, served):
    store, index = served[0].judgements, served[0].catalogue.view().index
    for number, attack in enumerate(attacks):
        store.judge(f"{attack[:60]}".replace("\n", ""), f"{attack} hostile", "pilots", number % 3)
        served[0].catalogue.own_systems[attack] = NamedSystem(
            attack, Lexical()
        )  # what models are called is text too
    ran(at, "bm25", "ql", *attacks)
    with tab() as page:
        reports = []
        page.on("console", lambda message: reports.append(message.text))
        for number, attack in enumerate(attacks):
            safe = quote(attack, safe="")
            for view in (
                f"/?query=hostile+{safe}&system=bm25&system=ql",
                f"/?query=ship&index={safe}",
                f"/judge?query=hostile+{safe}&judge={safe[:60]}&depth=20",
                f"/judge?query=hostile&judge=anna&system={safe}&depth=5",
                f"/queries?words={safe}",
                f"/why?query={safe}+ship&doc={safe}&system=bm25",
                f"/why?query=ship&doc=pilots&system={safe}",
                f"/document?query={safe}+ship&doc=pilots&system=bm25",
                f"/document?doc={safe}",
                f"/runs?system=bm25&system={safe}",
                f"/runs?system=bm25&system=ql&measures={safe}",
                "/runs?system=bm25&system=ql",
                f"/?query=ship&system=bm25&system={safe}",
                f"/why?query=ship&doc=pilots&system={safe}",
                "/train",
                f"/collection?query={safe}",
                "/judge",
                f"/{safe}",
            ):
                page.goto(at + view)
                assert page.evaluate("document.querySelectorAll('main img, main script, base').length") == 0
            page.goto(f"{at}/?query=hostile")
            doc = next(one for one in index.documents if one.startswith(f"x{number}-"))
            for view in ("document?", "document?query=hostile&", "why?query=hostile&"):
                page.goto(f"{at}/{view}doc={quote(doc, safe='')}")
                assert page.evaluate("document.querySelectorAll('main img, main script, base').length") == 0
            page.goto(f"{at}/queries")
        assert [text for text in reports if not text.startswith("Failed to load")] == []


def test_the_policy_forbids_what_is_inline_and_foreign(tab, at):
    with tab() as page:
        policy = page.goto(at).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "'unsafe-inline'" not in policy
        assert page.evaluate("document.querySelectorAll('[style], style, script:not([src])').length") == 0


def test_strange_texts_are_shown_whole_and_stay_in_their_place(tab, at):
    with tab() as page:
        page.goto(f"{at}/?query=ship&k=50")
        for doc in ("cjk", "rtl", "long-title", "no-title", "control"):
            hit = page.locator(f".hit[data-doc={doc}]")
            assert hit.count() == 1
            assert hit.bounding_box()["height"] < 320
        assert page.locator(".hit[data-doc=rtl] h3").evaluate("e => getComputedStyle(e).direction") == "rtl"
        assert "\ufffd" in page.inner_text(".hit[data-doc=control] h3")


@pytest.mark.parametrize("name", [name for name in VIEWS if name not in UNSAVED])
def test_a_saved_view_stands_alone(name, tab, at, tmp_path):
    with tab() as page:
        page.goto(at + VIEWS[name])
        heading = page.locator("h1").inner_text()
        with page.expect_download() as saving:
            page.get_by_role("link", name="page", exact=True).click()
        saving.value.save_as(tmp_path / "saved.html")
    with tab(offline=True) as page:
        page.goto((tmp_path / "saved.html").as_uri())
        assert page.locator("h1").inner_text() == heading
        assert page.locator(LIVE).count() == 0
        assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none"
