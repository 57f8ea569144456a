"""What a service is told when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rankhouse.systems.rankers import ComputeOptions


@dataclass(frozen=True)
class Limits:
    """What one client may ask of the service.

    Attributes:
        body: Bytes of a request's body; more is refused before it is read.
        patience: Seconds in which the head of a request, the first bytes of its body, or the next bytes of
            an answer must get across.
        slowest: Bytes a second that a body must arrive with over each stretch of the patience.
        request: Seconds until a request that has not begun to be answered ends with 504.
        grace: Seconds that requests have to finish after SIGTERM.
        queue_tokens: Tokens of work that wait for a model at most; 0 for the engine's own bound.
    """

    body: int = 64 << 20
    patience: float = 20.0
    slowest: int = 16 << 10
    request: float = 3600.0
    grace: float = 30.0
    queue_tokens: int = 0


@dataclass(frozen=True)
class ServeOptions:
    """What is served, to whom, and where it writes.

    Attributes:
        indexes: Name -> folder; the first is the default.
        rankers: Name -> notation or folder; an encoder makes its vectors in the indexes searchable.
        queries: Questions of the first index: a list to choose from, to judge and to compare runs on.
        qrels: Judgements of them that are there already; they are only read.
        runs: Name -> run file, compared beside the systems.
        judgements: The qrels file that judging writes; None for a service that only reads.
        trainings: The folder of rankers trained from judgements; None beside the judgements.
        split: How long documents are cut for rankers; "" for each ranker's own.
        pool: How passages' scores become a document's; "" for each ranker's own.
        compute: Precision, device and threads of the rankers.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        key_file: Keys of those who may come in; None lets everybody on this machine in.
        allow_hosts: Names besides the address under which the service is reached, for example a proxy's.
        access_log: A file that gets one line of JSON a request; "-" for standard error, None for none.
        audit: A file that gets one line of JSON for whatever was judged, trained or refused.
        limits: What one client may ask.
        cluster: The Ray cluster that holds the parts of indexes, and the rankers: "ray", or its address; ""
            for this process alone.
        replicas: How many of each part and each ranker the cluster holds.
        partial: Whether what the other parts of an index find is good enough where some do not answer.
    """

    indexes: Mapping[str, Path] = field(default_factory=dict)
    rankers: Mapping[str, str] = field(default_factory=dict)
    queries: Path | None = None
    qrels: Path | None = None
    runs: Mapping[str, Path] = field(default_factory=dict)
    judgements: Path | None = None
    trainings: Path | None = None
    split: str = ""
    pool: str = ""
    compute: ComputeOptions = field(default_factory=ComputeOptions)
    host: str = "127.0.0.1"
    port: int = 8080
    key_file: Path | None = None
    allow_hosts: tuple[str, ...] = ()
    access_log: Path | None = None
    audit: Path | None = None
    limits: Limits = Limits()
    cluster: str = ""
    replicas: int = 1
    partial: bool = False
