"""Two tabs of one judge in a real browser: grades, undoing, reloads and kills of a tab, all at once.

What was answered is kept, and every tab shows, when it is loaded again, what the file of judgements holds.
Needs playwright and Debian's chromium; without them there are no trials.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from .served import Fault, serving, verdict_of
from .verdicts import Trial
from .world import WORDS

_TRIALS, _DEEDS = 30, 30
_ANY = "*"  # documents of which a later word may have been any
_CHROMIUM = shutil.which("chromium")
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
              "--disable-component-update", "--disable-sync", "--no-first-run")  # fmt: skip


def trials(seed: int) -> Iterator[Trial]:
    """Return judges at two tabs each."""
    if _CHROMIUM is None or find_spec("playwright") is None:
        return
    rng = random.Random(seed)
    for number in [rng.randrange(1 << 30) for _ in range(_TRIALS)]:
        yield Trial(
            f"two tabs {number}", lambda f, n=number: verdict_of(lambda: _two_tabs(f, random.Random(n)))
        )


def _two_tabs(folder: Path, rng: random.Random) -> None:
    from playwright.sync_api import sync_playwright

    asked = urlencode({"query": rng.choice(WORDS), "judge": "anna", "depth": 10, "system": "bm25"})
    with serving(folder, "--judgements", "new.qrels") as service, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=_CHROMIUM, args=list(_ARGUMENTS))
        context = browser.new_context()
        address = f"http://127.0.0.1:{service.port}/judge?{asked}"
        tabs, said = [_opened(context, address) for _ in range(2)], dict[str, str]()
        grades = ("grade", "grade", "grade", "reload", "leave")
        deeds = grades if rng.random() < 0.5 else (*grades, "key", "key", "undo")
        for _ in range(_DEEDS):
            place = rng.randrange(2)
            deed = rng.choice(deeds)
            if deed == "leave":  # in the middle of whatever it does
                tabs[place].close()
                tabs[place] = _opened(context, address)
            elif deed == "reload":
                tabs[place].reload()
            else:
                _speak(tabs[place], deed, rng, said)
        for page in tabs:
            page.wait_for_load_state("networkidle")
        again = _opened(context, address)
        if _ANY not in said:  # grades of one tab appear in the other
            again.wait_for_timeout(500)
            _compare(folder / "new.qrels", [_shown(page) for page in tabs], said)
        _compare(folder / "new.qrels", [_shown(again)], said)
        browser.close()


def _opened(context: Any, address: str) -> Any:  # noqa: ANN401 - playwright may be absent
    page = context.new_page()
    page.goto(address)
    return page


def _speak(page: Any, deed: str, rng: random.Random, said: dict[str, str]) -> None:  # noqa: ANN401
    """Grade or undo in a tab; half of the time its answer is waited for, and counts from then on."""
    buttons = page.locator(".card button[name=mark]")
    if deed == "undo":
        said[_ANY] = ""  # it takes back the last word of whichever tab
        undo = page.get_by_role("button", name="Undo")
        if undo.is_enabled():
            undo.click()
        return
    if deed == "key":
        said[_ANY] = ""
        page.keyboard.press(rng.choice("012jkus"))
        return
    button = buttons.nth(rng.randrange(buttons.count()))
    grade, _, document = button.get_attribute("value").split(" ", 2)
    if rng.random() < 0.5:
        said[document] = ""  # it may arrive behind a later one
        button.click()
        return
    with page.expect_response(lambda reply: reply.request.method == "POST") as reply:
        button.click()
    if reply.value.status == 409 and document in said:
        return  # graded in the other tab since, whose news had not arrived
    if reply.value.status >= 400:
        raise Fault("wrong", f"{reply.value.status} to a grade")
    if said.get(document) != "":
        said[document] = grade


def _shown(page: Any) -> dict[str, str]:  # noqa: ANN401
    """Return the grades that a page shows."""
    found = {}
    for card in page.locator(".card").all():
        with suppress(IndexError):
            pressed = card.locator("[aria-pressed=true]").all()[0]
            found[card.get_attribute("data-doc")] = pressed.get_attribute("data-grade")
    return found


def _compare(file: Path, pages: list[dict[str, str]], said: dict[str, str]) -> None:
    lines = file.read_text().splitlines() if file.exists() else []
    held = {document: grade for _, _, document, grade in map(str.split, lines)}
    for shown in pages:
        if shown != held:
            raise Fault("wrong", f"a tab shows {shown}, the file holds {held}")
    sure = {} if _ANY in said else {document: grade for document, grade in said.items() if grade}
    if missing := {document: grade for document, grade in sure.items() if held.get(document) != grade}:
        raise Fault("lost", f"{missing} were answered, the file holds {held}")
