"""A real browser (Debian's chromium) on a real service; what a page does and should not is a failure."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

import rankhouse as rh

AXE = Path(__file__).parents[1] / "npm" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip

XSS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</title><script>alert(1)</script>",
    "</textarea></select><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{7*7}}{% raw %}",
    "--><script>alert(1)</script><!--",
    '" onfocus=alert(1) autofocus="',
    "</style><style>*{display:none}</style>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<a href=//evil.example/>x</a><base href=//evil.example/>",
)
STRANGE = (
    ("cjk", "港口的引水员", "引水员把船只引入港口。港口 ship ship。" * 5),
    ("rtl", "طيارو الميناء", "يقود الطيارون السفن ship إلى الميناء. \u202e reversed"),
    ("long-title", "ship " * 400, "A ship with a long title."),
    ("no-title", "", "A ship without a title, and a word" + "x" * 500),
    ("control", "bell \x07 ship \x1b[31m", "A ship\x00 with\x0b control\x85 characters\x9f."),
)
GUIDE = """<!-- introduced_in=v1 -->

# Lighting

Beacons are *lit* by [keepers](https://example.org/keepers), see [below](#below) and <b>here</b>.

```sh
beacon --light
    --bright <now>
```

| oil | hours |
|---|---|
| whale | 9 |

<script>alert(1)</script> ![x](https://evil.example/x.png) [y](javascript:alert(1))
"""
FOGHORN = """\
Foghorn
=======

A *foghorn* is blown by `keepers <https://example.org/keepers>`_ in a :ref:`fog <fog>`.

.. code-block:: sh

   horn --blow <now>

Signals
-------

=====  ======
blasts meaning
=====  ======
one    stop
=====  ======

short
    A warning.

.. raw:: html

   <script>alert(1)</script>

.. image:: javascript:alert(1)
"""
CHRONICLE = "\n\n".join(
    [f"Entry {n} tells of weather and trade, of those who came and of those who went." for n in range(300)]
    + ["A lantern was hung at the gate."]
    + [
        f"Entry {n} tells of weather and trade, of those who came and of those who went."
        for n in range(300, 500)
    ]
    + ["Nobody took the lantern down."]
)


def documents():
    """Documents about ships: plain ones, strange ones, hostile ones."""
    yield {
        "id": "pilots",
        "title": "Harbour pilots",
        "text": "Pilots board ships and steer them into the harbour.",
    }
    yield {"id": "locks", "title": "Canal locks", "text": "A lock lifts ships between two levels of water."}
    yield {
        "id": "tides",
        "title": "Tides",
        "text": "The moon pulls the sea, so harbours see high water twice a day.",
    }
    yield {
        "id": "grain",
        "title": "Grain trade",
        "text": "Ships carried grain; prices rose when harvests were poor.",
    }
    for number in range(8):
        text = f"Ship number {number} of the fleet is a ship. It sails to the harbour. " * (number + 1)
        yield {"id": f"fleet-{number}", "title": f"Fleet {number}", "text": text}
    text = (
        "The crew came aboard. They stowed bread and water. The ship left the harbour at dawn. A harbour "
        "number was painted on her bow. Gulls followed. Night fell over the sea. Nobody slept."
    )
    yield {"id": "voyage", "title": "A voyage", "text": text}
    yield {"id": "guide.md", "title": "A guide to beacons", "text": GUIDE}
    yield {"id": "foghorn.rst", "title": "A guide to foghorns", "text": FOGHORN}
    yield {"id": "chronicle", "title": "The chronicle", "text": CHRONICLE}
    for doc_id, title, text in STRANGE:
        yield {"id": doc_id, "title": title, "text": text}
    for number, attack in enumerate(XSS):
        doc_id = f"x{number}-{''.join(attack.split())}"
        yield {"id": doc_id, "title": attack, "text": f"hostile {attack} text"}


@pytest.fixture(scope="session")
def attacks():
    """Texts that would run something if a page held them as they are."""
    return XSS


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """An index, its questions, and judgements of one of them."""
    place = tmp_path_factory.mktemp("page")
    rh.Index.build(list(documents()), str(place / "index"))
    lines = ['{"id": "q1", "text": "who steers ships?"}', '{"id": "q2", "text": "harbour"}',
             '{"id": "q3", "text": "<script>alert(1)</script> hostile"}']  # fmt: skip
    (place / "queries.jsonl").write_text("\n".join(lines) + "\n")
    (place / "qrels.txt").write_text("q1 0 pilots 2\nq1 0 grain 0\nq2 0 tides 1\nq2 0 fleet-0 1\n")
    return place


@pytest.fixture(scope="session")
def options_for(folder):
    """From a folder for judgements to what a service of the index is told."""
    from rankhouse.serve.host.settings import ServeOptions

    def options(place):
        return ServeOptions(
            indexes={"ships": folder / "index"},
            queries=folder / "queries.jsonl",
            qrels=folder / "qrels.txt",
            judgements=place / "judged.txt",
            port=0,
        )

    return options


@pytest.fixture
def options(options_for, tmp_path):
    """Settings of a service of the index."""
    return options_for(tmp_path)


@pytest.fixture
def served(options, running):
    """The service itself and the address it answers under."""
    from rankhouse.serve.host.service import open_service

    service = open_service(options)
    with running(service) as client:
        yield service, f"http://127.0.0.1:{client.port}"


@pytest.fixture
def at(served):
    """The address of the service."""
    return served[1]


@pytest.fixture(scope="session")
def axe():
    """The text of axe-core."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make clients")
    return AXE.read_text()


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium, for a file of tests: while it runs, this thread can have no other event loop."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: extra dev")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


def _is_fault(message):
    """A refusal (status 4xx) is logged by the browser itself, and wanted."""
    return message.type in ("error", "warning") and not message.text.startswith("Failed to load resource")


@pytest.fixture
def tab(browser, at):
    """Open a tab; when it closes, nothing may have run, failed or gone elsewhere."""

    @contextmanager
    def opened(**settings):
        is_tested_with_axe = settings.pop("axe", False)
        # A page that scrolls smoothly moves a button away under the mouse.
        usual = {"reduced_motion": "reduce", "viewport": {"width": 1280, "height": 900}}
        settings = {"bypass_csp": is_tested_with_axe, **usual, **settings}
        context = browser.new_context(**settings)
        page, wrong = context.new_page(), []
        page.on("dialog", lambda dialog: (wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: wrong.append(f"error {error}"))
        page.on("console", lambda m: wrong.append(f"console {m.text}") if _is_fault(m) else None)
        page.on(
            "request",
            lambda r: None if r.url.startswith((at, "data:", "blob:", "file:")) else wrong.append(r.url),
        )
        try:
            yield page
        finally:
            context.close()
        assert wrong == []

    return opened


@pytest.fixture
def follow():
    """Press a link or a button, and wait for the page it leads to; gives the answer it came in."""

    def press(page, target):
        with page.expect_navigation() as led:
            target.click()
        return led.value

    return press


@pytest.fixture
def grown():
    """Wait for what a page shows once it has loaded itself again, and for all of it, its scripts too."""

    def wait(page, selector):
        page.wait_for_selector(selector)
        page.wait_for_load_state()

    return wait
