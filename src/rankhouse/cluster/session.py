"""Connecting to Ray: a cluster started for one command, or one that is there, and the room it has."""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple

from rankhouse.core.errors import RankhouseError, WrongUse, needs

LOCAL: Final = "local"
"""The address of a Ray that is started on this machine."""
_CLIENT_PORT: Final = 10001
_ADDRESS: Final = re.compile(r"(?P<scheme>ray://)?(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{1,5}))?")
_QUIET: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
_LOCAL_STORE: Final = 256 << 20  # bytes; shards are files, so little passes through Ray's memory
_FULL_STORE: Final = {"OutOfDiskError", "ObjectStoreFullError"}  # of ray.exceptions
_PATIENCE: Final = 5.0  # seconds to wait for a connection
_FIRST_WORD: Final = 20.0  # seconds to wait for the first bytes: the cluster may be busy
_SETTINGS: Final = bytes(3) + b"\x04" + bytes(5)  # HTTP/2's first frame, empty
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS


class ClusterOptions(NamedTuple):
    """Cluster of a job, and its workers."""

    address: str  # "local" starts a Ray of its own; else ``ray://HOST:PORT`` or ``HOST:PORT``
    workers: int = 0  # 0 for as many as the cluster has room for
    cpus: int = 0  # processors of each; 0 leaves it to the job


def read_address(text: str) -> str:
    """Return the address that ``--cluster`` names, as Ray takes it.

    >>> read_address("ray"), read_address("ray://head"), read_address("10.0.0.1:6379")
    ('local', 'ray://head:10001', '10.0.0.1:6379')
    """
    if text == "ray":
        return LOCAL
    match = _ADDRESS.fullmatch(text)
    if match and (match["scheme"] or match["port"]) and int(match["port"] or 1) in range(1, 1 << 16):
        port = match["port"] or _CLIENT_PORT
        return f"{match['scheme'] or ''}{match['host']}:{port}"
    raise WrongUse(
        f'--cluster "{text}" names no cluster; write  ray  (one is started on this machine), '
        f"ray://HOST:PORT  (the client port of a cluster elsewhere, usually {_CLIENT_PORT}) or  HOST:PORT  "
        "(a cluster that this machine is a node of, usually port 6379)"
    )


def load_ray() -> Any:  # noqa: ANN401 - Ray's own types change from version to version
    """Import Ray, which then neither reports home nor talks, and leaves SIGTERM to the program."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with needs("cluster", "--cluster"):
        import ray
    # News of deaths, on standard output; a handler that ends the process with 1.
    for module, name in (("worker", "print_to_stdstream"), ("utils", "set_sigterm_handler")):
        with suppress(ImportError):
            vars(importlib.import_module(f"ray._private.{module}"))[name] = lambda *_, **__: None
    return ray


@contextmanager
def ray_session(options: ClusterOptions) -> Iterator[Any]:
    """Yield Ray, connected to the cluster as long as the block runs.

    Raises MissingExtra where Ray is not installed, RankhouseError where nobody answers at the address, or a
    Ray or Python of another version does.
    """
    ray = load_ray()
    started = False
    with ThreadPoolExecutor(1) as thread:  # as long as the session: processes of Ray end with the thread
        try:
            _uninterrupted(thread, partial(_connect, ray, options))
            started = True
            logging.getLogger("ray").setLevel(logging.CRITICAL + 1)
            yield ray
        except Exception as error:
            if reason := full_store(error):
                raise RankhouseError(
                    f"--cluster {options.address}: {reason}; then give the same command again"
                ) from error
            if type(error) is not ConnectionError:  # not of a pipe or a socket
                raise
            raise RankhouseError(
                f"--cluster {options.address}: the connection was lost ({first_line(error)}); see that the "
                "cluster runs (ray status), and give the same command again"
            ) from error
        finally:
            with suppress(Exception):  # nothing that Ray does at its end may hide what ended the work
                ray.shutdown()
            if not started and options.address.startswith("ray://"):
                with suppress(Exception):
                    ray.util.disconnect()


def _connect(ray: Any, options: ClusterOptions) -> None:  # noqa: ANN401
    quiet = {"logging_level": logging.CRITICAL + 1, "log_to_driver": False}
    if options.address == LOCAL:
        cpus = _local_cpus(options)
        try:
            ray.init(
                "local", num_cpus=cpus, include_dashboard=False, object_store_memory=_LOCAL_STORE, **quiet
            )
        except Exception as error:  # its processes are given 30 seconds to start
            raise RankhouseError(
                f"--cluster ray: Ray cannot be started on this machine: {first_line(error)}; if it is "
                "busy, give the same command again"
            ) from error
        return
    _require_answer(options.address)
    try:
        try:
            ray.init(options.address, **quiet)
        except ConnectionAbortedError:  # a client's server did not start in Ray's own time: a busy machine
            ray.shutdown()
            ray.init(options.address, **quiet)
    except Exception as error:
        raise _refusal(options.address, error) from error


def _local_cpus(options: ClusterOptions) -> int:
    """Return how many processors a cluster of this machine offers; Ray starts a process for each."""
    own, workers, cpus = processors(), max(1, options.workers), max(1, options.cpus)
    most = max(16, 8 * own)
    if workers * cpus > most:
        raise WrongUse(
            f"--cluster ray: {workers:,} workers of {cpus:,} processors do not fit on this machine, which "
            f"has {own:,}; ask for {most:,} in all at the most (--cluster-workers, --worker-cpus)"
        )
    return max(own, workers * cpus)


def processors() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _require_answer(address: str) -> None:
    """Find out within seconds whether Ray listens; Ray itself would try for minutes, or end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as asked:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return
            asked.settimeout(_FIRST_WORD)
            asked.sendall(_GREETING)
            answer = asked.makefile("rb").read(len(_SETTINGS))
    except OSError as error:
        raise RankhouseError(
            f"--cluster {address}: nobody answers there ({error.strerror or error}); check the address and "
            "that the cluster runs (ray status), or write  --cluster ray  to start one on this machine"
        ) from error
    if answer[3:4] != _SETTINGS[3:4]:
        raise RankhouseError(
            f"--cluster {address}: something answers there, but not Ray; check the port: ray://HOST:10001 is "
            "for Ray's clients, HOST:6379 for machines of the cluster, where it was not changed"
        )
    _require_own_port(address)


def _require_own_port(address: str) -> None:
    """Refuse the port of Ray's clients where that of its nodes belongs, and the other way round.

    Each of them answers that it does not know the other's calls; Ray itself would ask for half a minute.
    """
    where = address.removeprefix("ray://")
    call = "RayletDriver/ClusterInfo" if where != address else "NodeInfoGcsService/GetClusterId"
    grpc = importlib.import_module("grpc")
    with grpc.insecure_channel(where, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(f"/ray.rpc.{call}")(b"", timeout=_PATIENCE)
        except grpc.RpcError as error:  # whatever else is wrong, Ray says itself
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                raise _refusal(
                    address, ConnectionError("Ray answers there, at another of its ports")
                ) from None


def _refusal(address: str, error: Exception) -> RankhouseError:
    text = str(error).strip()
    if "ersion mismatch" in text:
        return RankhouseError(
            f"--cluster {address}: another Ray or Python runs there; both must be the same, to the last "
            f"figure: {' '.join(text.split())}"
        )
    advice = (
        "ray://HOST:PORT takes Ray's client port, usually 10001, and not that of its nodes"
        if address.startswith("ray://")
        else "HOST:PORT is for machines that are nodes of the cluster, ray://HOST:10001 for all others"
    )
    reason = " ".join(text.split())[-400:]  # it stands at the end
    return RankhouseError(f"--cluster {address}: cannot be joined: {reason}; {advice}")


def first_line(error: Exception) -> str:
    """Return what an error of Ray's says first; the rest is a trace."""
    error = getattr(error, "cause", None) or error  # what was raised there: the task's own text is all trace
    return next(iter(str(error).strip().splitlines()), "").rstrip() or type(error).__name__


def full_store(error: BaseException) -> str:
    """Return what to do about an error that means a full object store of Ray's; "" for any other error."""
    if not _FULL_STORE & {kind.__name__ for kind in type(error).__mro__}:
        return ""
    match = re.search(r"\bip=([\w.:]+)", str(error))  # of the actor that could not store its answer
    where = match[1] if match else "the machine that this command is connected to"
    return (
        f"Ray's object store on {where} and the disk below it are full; free some space (ray memory lists "
        "what is stored), or start Ray with a larger one (ray start --object-store-memory)"
    )


def _uninterrupted(thread: Executor, connect: Callable[[], None]) -> None:
    """Connect in another thread, so that a signal interrupts nothing in Ray's core, which would abort.

    The core also puts a handler of SIGTERM below Python's, one that prints a trace; ours goes back at once.
    """
    connected = thread.submit(connect)
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        while wait([connected], timeout=0.05).not_done:
            if is_main:
                signal.signal(signal.SIGTERM, before)
    finally:
        wait([connected])
        if is_main:
            signal.signal(signal.SIGTERM, before)
    connected.result()


class Capacity:
    """Workers that a cluster can hold, at most so many at once (0: any number).

    Unless the device is "cpu", each worker gets a GPU where there are any.
    """

    def __init__(self, ray: Any, options: ClusterOptions, device: str = "cpu", at_once: int = 0) -> None:  # noqa: ANN401
        self._ray, self._wanted, self._asked = ray, options.workers, options.cpus
        nodes = self._nodes()
        largest = int(max((node.get("CPU", 0) for node in nodes), default=0))
        has_gpu = any(node.get("GPU", 0) >= 1 for node in nodes)
        self.gpus = int(has_gpu and device != "cpu")
        share = int(sum(node.get("CPU", 0) for node in nodes)) // (at_once or options.workers or 1)
        usual = largest if at_once else 4  # one copy of the model for all processors of a worker
        self.cpus = options.cpus or max(1, min(share, usual, largest))

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def workers(self) -> int:
        """Return how many workers there should be now: as asked, else as many as living nodes have room for.

        If no living node is as large as a worker was to be, workers get smaller, unless their size was given.
        """
        largest = int(max((node.get("CPU", 0) for node in self._nodes()), default=0))
        if largest and not self._asked:
            self.cpus = min(self.cpus, largest)
        if self._wanted:
            return self._wanted
        room = 0
        for node in self._nodes():
            by_gpu = int(node.get("GPU", 0)) if self.gpus else self.cpus * 1_000_000
            room += min(int(node.get("CPU", 0)) // self.cpus, by_gpu)
        return max(1, room)

    @property
    def resources(self) -> dict[str, int]:
        """Resources of one worker, as options of a Ray actor."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}
