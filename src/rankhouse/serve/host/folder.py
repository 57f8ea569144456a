"""The service of a folder: what keeps its index runs beside, and is shown on the terminal and the pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from subprocess import Popen

import msgspec

from rankhouse.core import progress
from rankhouse.core.errors import RankhouseError
from rankhouse.serve.folder import keeping
from rankhouse.serve.folder.files import LOADING, READING, FolderProgress
from rankhouse.serve.folder.prepare import EncoderAtHand, Place, index_folder, is_encoded
from rankhouse.serve.host.service import Service
from rankhouse.serve.host.settings import ENCODER
from rankhouse.serve.judging.process import last_words, started

_PAUSE = 0.5  # seconds between two looks at how far the work is
_AGAIN = 5.0  # seconds until a process that ended is started again
_PARTS = 10_000


def read_first(place: Place, name: str, service: Service) -> None:
    """Index a folder for the first time and serve it by a name; the service tells how far that is."""

    def tell(now: FolderProgress) -> None:
        service.standing = now

    tell(FolderProgress(READING))
    index_folder(place, tell=tell)
    service.catalogue.add_index(name, place.index)
    tell(FolderProgress())


def kept(place: Place, at_hand: EncoderAtHand | None) -> Callable[[Service], None]:
    """Return what a service of a folder does beside answering: it is run in a thread of its own.

    A process keeps index and vectors up to the files, and is started again where it ends. The encoder is
    offered once its vectors are there.
    """
    said, choice = place.state / "said.txt", msgspec.json.encode(place.choice).decode()
    offered = at_hand is None

    def beside(service: Service) -> None:
        service.standing = FolderProgress("" if offered else LOADING)  # before what is stored is looked at
        while True:
            try:
                once(service)
                reason = last_words(said)
            except OSError as error:  # no room for what it says, too many processes
                reason = str(error)
            service.standing = FolderProgress()
            progress.say(f"the process that watches the files ended and is being restarted ({reason})")
            time.sleep(_AGAIN)

    def once(service: Service) -> None:
        place.progress.unlink(missing_ok=True)
        offer(service)
        process = started([str(place.folder), choice, *(at_hand or ())], said, keeping.__name__)
        shown = 0
        for now in _changes(place, process):
            for remark in now.remarks[max(0, len(now.remarks) - (now.said - shown)) :]:
                progress.say(remark)
            shown, service.standing = now.said, now
            offer(service)

    def offer(service: Service) -> None:
        nonlocal offered
        if offered or at_hand is None or not _is_ready(place, at_hand):
            return
        offered = True
        before = FolderProgress() if service.standing.work == LOADING else service.standing
        service.standing = FolderProgress(LOADING)
        try:
            service.add_ranker(ENCODER, at_hand.spec)
            progress.say("vectors are ready: search is now by meaning as well as by words")
        except RankhouseError as error:
            progress.say(f"search is by words only: {error}")
        service.standing = before

    return beside


def _is_ready(place: Place, at_hand: EncoderAtHand) -> bool:
    with suppress(RankhouseError):  # being replaced
        return is_encoded(place, at_hand)
    return False


def _changes(place: Place, process: Popen[bytes]) -> Iterator[FolderProgress]:
    """Yield how far the work is, again and again, until its process ends; bars show it meanwhile.

    Work of a moment begins and ends between two looks: what it made is there, though nothing seems to be new.
    """
    while process.poll() is None:
        yield (now := FolderProgress.load(place.progress))
        if now.work:
            with progress.shown(now.work, _PARTS, "bytes") as show:
                while (
                    process.poll() is None and (then := FolderProgress.load(place.progress)).work == now.work
                ):
                    show(int(then.share * _PARTS), _PARTS)
                    yield then
                    time.sleep(_PAUSE)
        time.sleep(_PAUSE)
