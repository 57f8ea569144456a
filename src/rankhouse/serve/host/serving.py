"""A service's life: bind, warm up while probes are answered, drain on SIGTERM or Ctrl-C, end."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType

import uvicorn

from rankhouse.core import progress
from rankhouse.core.errors import WrongUse
from rankhouse.serve.host.application import build_app
from rankhouse.serve.host.connection import PatientProtocol
from rankhouse.serve.host.gates import MAKE_ONE, is_loopback
from rankhouse.serve.host.service import Phase, RemoteHolder, Service, open_service
from rankhouse.serve.host.settings import ServeOptions

KEEP_ALIVE = 75  # seconds that an idle connection stays open, longer than the minute of usual proxies
_TURN = 0.001  # seconds until a thread that cuts or tokenises texts lets the one that answers go on
_GARBAGE = 10_000  # objects more than were freed, until cycles are looked for
_TWICE = 0.5  # seconds within which a second signal is the first one again
_GLANCE = 1.0  # seconds between two looks whether the thread that answers lives
_LAST_WORDS = 2  # seconds in which answers that were cut off are tidied up


def check_exposure(options: ServeOptions) -> None:
    """Refuse, by a WrongUse, to be reached from other machines without a key."""
    if options.key_file is None and not is_loopback(options.host):
        raise WrongUse(
            f"--host {options.host}: other machines could read and judge here, so a key is needed; make "
            f"one:  {MAKE_ONE}  and give  --key-file keys.txt  (or listen on 127.0.0.1, behind a proxy)"
        )


def bind(host: str, port: int) -> socket.socket:
    """Take an address before anything is opened, so that a port in use is a WrongUse at once."""
    listener = None
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # localhost is 127.0.0.1 to most clients, whichever comes first here
        family, kind, protocol, _, address = min(places, key=lambda place: place[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1)
    except socket.gaierror as error:
        raise WrongUse(f"--host {host}: is no address of this machine ({error.strerror})") from error
    except OSError as error:
        if listener is not None:
            listener.close()
        raise WrongUse(
            f"--port {port}: nothing can listen on {host}, port {port} ({error.strerror}); is another "
            "program, or another rankhouse serve, there? Name another port, or 0 for a free one"
        ) from error
    return listener


def address_of(host: str, listener: socket.socket) -> str:
    """Return the address to open."""
    named = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)  # noqa: S104 - read
    return f"http://{f'[{named}]' if ':' in named else named}:{listener.getsockname()[1]}/"


def start(
    options: ServeOptions,
    cluster: Callable[[], AbstractContextManager[RemoteHolder | None]] = nullcontext,
    *,
    opens: bool = False,
    first: Callable[[Service], None] | None = None,
    beside: Callable[[Service], None] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in progress then have the grace time, and the process ends.

    The exit code is 0 after a drain, and tells the signal where a second one came.

    Args:
        cluster: Connects to what holds indexes and rankers elsewhere.
        opens: Whether the page is opened in the browser.
        first: Opens the indexes, in this thread, while another one answers how far that is.
        beside: Runs beside answering, in a thread, once the service is ready.
    """
    check_exposure(options)
    _allow_many_files()
    sys.setswitchinterval(_TURN)
    listener = bind(options.host, options.port)
    address = address_of(options.host, listener)

    def ready() -> None:
        gc.freeze()  # modules and models stay: nobody need look through them again and again
        gc.set_threshold(_GARBAGE)
        indexes, rankers = service.catalogue.indexes, options.rankers
        counts = ((len(indexes), "index", "indexes"), (len(rankers), "ranker", "rankers"))
        served = " and ".join(progress.counted(*count) for count in counts if count[0]) or "nothing"
        progress.say(f"rankhouse serves {served} at {address} (Ctrl-C ends it)")
        if opens and first is None:
            webbrowser.open(address)
        if beside is not None:
            threading.Thread(target=beside, args=(service,), name="beside", daemon=True).start()

    if opened := [name for name in options.rankers if name not in options.late]:
        progress.say(f"opening {', '.join(opened)} ...")  # the longest wait of a start
    try:
        with cluster() as held:
            service = open_service(options, held)
            try:
                if first is not None:
                    progress.say(f"reading files: progress, and then search, at {address} (Ctrl-C ends it)")
                    if opens:
                        threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()
                server = Server(service, ready, first)
                server.run([listener])
            finally:
                service.close()
    finally:
        listener.close()
    if server.fault is not None:
        raise server.fault
    # Not by returning: a thread that still computes for nobody would hold the process, or break in it.
    with suppress(OSError):  # a full disk, where it is a file
        sys.stderr.flush()
    os._exit(server.code)


def _allow_many_files(wanted: int = 16_384) -> None:
    """Let the process have as many connections as the system lets it."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Server(uvicorn.Server):
    """The server of a service, with a warm-up, and a drain that keeps answering probes."""

    def __init__(
        self,
        service: Service,
        when_ready: Callable[[], None] = lambda: None,
        first: Callable[[Service], None] | None = None,
    ) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # malformed requests are no news
        patience = {"patience": service.options.limits.patience, "idle": {}}
        super().__init__(
            uvicorn.Config(
                build_app(service),
                loop="auto",
                http=type("Protocol", (PatientProtocol,), patience),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=_LAST_WORDS,
            )
        )
        self._service, self._when_ready, self._first = service, when_ready, first
        self._begun = 0.0
        self.code = 0
        self._ends = 0.0  # when the grace is over
        self._second = 0  # the signal that ended the grace early
        self.fault: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then warm up beside answering."""
        await super().startup(sockets)
        if self._first is None:
            self._warm_up()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve to the end.

        What comes first is done in this thread, so that its faults and signals end the program as those of
        any other work do; another thread answers, then and from then on.
        """
        if self._first is None:
            super().run(sockets)
            return
        thread = threading.Thread(target=self._answer, args=(sockets,), name="answering", daemon=True)
        thread.start()
        try:
            self._first(self._service)
            self._warm_up()
            with self.capture_signals():
                while thread.is_alive():
                    thread.join(_GLANCE)  # without a limit, Windows would heed no signal
        finally:
            self.should_exit = True
            thread.join(_LAST_WORDS + 1)

    def _answer(self, sockets: list[socket.socket] | None) -> None:
        try:
            super().run(sockets)
        except BaseException as error:  # noqa: BLE001 - as in _warm
            self.fault = error

    def _warm_up(self) -> None:
        threading.Thread(target=self._warm, name="warm-up", daemon=True).start()

    def _warm(self) -> None:
        try:
            self._service.warm()
            if self._service.phase is Phase.READY:
                self._when_ready()
        except BaseException as error:  # noqa: BLE001 - raised again when the server has stopped
            self.fault, self.should_exit = error, True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain on the first signal. Signals during the drain change nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain; a second signal ends at once, unless it is the first one again (to process and group)."""
        del frame
        now, service, grace = time.monotonic(), self._service, self._service.options.limits.grace
        if service.phase is Phase.DRAINING:
            if service.tasks and now > self._begun + _TWICE:
                self._ends, self._second = 0.0, sig
            return
        service.phase = Phase.DRAINING
        self._begun, self._ends = now, now + grace
        if service.tasks:
            progress.say(
                f"{signal.Signals(sig).name}: {len(service.tasks)} requests in progress have {grace:g} s to "
                "end; a second signal ends at once"
            )

    async def on_tick(self, counter: int) -> bool:
        """Look ten times a second whether the drain is over."""
        service = self._service
        if service.phase is Phase.DRAINING and not self.should_exit:
            if service.tasks and time.monotonic() > self._ends and not service.is_over:
                progress.say(f"{len(service.tasks)} requests had not ended in time and were cut off")
                service.is_over = True
                for task in service.tasks:
                    task.cancel()
                if self._second:  # a failure only where it cut something off
                    self.code = 128 + self._second
            else:
                self.should_exit = not service.tasks or service.is_over
        return await super().on_tick(counter)
