"""rankhouse serve: indexes and rankers for rerank clients, and a page to search, compare and judge."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankhouse.cli.options import COUNT, FROM_ZERO, LOCAL, PATH, SOURCE, FileCommand, idle, options_of
from rankhouse.core.errors import needs
from rankhouse.systems.rankers import ComputeOptions

if TYPE_CHECKING:
    from rankhouse.serve.host.service import RemoteHolder, Service
    from rankhouse.serve.host.settings import ServeOptions

_SECONDS = click.FloatRange(0, min_open=True, max=1e6)


@click.command(
    "serve",
    cls=FileCommand,
    epilog="Example:  rankhouse serve my.index --ranker ce='crossencoder(\"DIR\")' --judgements mine.qrels",
)
@click.argument("indexes", nargs=-1, type=SOURCE, metavar="[[NAME=]INDEX]...")
@click.option("--ranker", "rankers", type=SOURCE, multiple=True, metavar="[NAME=]RANKER",
              help="A ranker or an encoder; of several the first is the default.")  # fmt: skip
@click.option("--system", "systems", type=SOURCE, multiple=True, metavar="NAME=EXPR",
              help="A system to choose by name: hybrid='bm25 + 0.5 * dense(\"DIR\")'.")  # fmt: skip
@click.option("--split", default="", help="How long documents are cut.  [default: each ranker's own way]")
@click.option("--pool", default="", help="What makes one score of passages.  [default: each ranker's own]")
@click.option("--queries", type=PATH, help="Questions to choose from, of the first index.")
@click.option("--qrels", type=PATH, help="Judgements of them that are there already; only read.")
@click.option(
    "--run", "runs", multiple=True, metavar="[NAME=]RUN", help="A run to compare beside the systems."
)
@click.option(
    "--judgements", type=LOCAL, help="The qrels file that judging writes; without it nobody judges."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8080, show_default=True,
              help="The port; 0 takes a free one.")  # fmt: skip
@click.option("--key-file", type=PATH, help="Keys of those who may come in, NAME KEY [read] a line.")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME",
              help="Another name under which the service is reached, such as a proxy's.")  # fmt: skip
@click.option("--max-body", type=COUNT, default=64, show_default=True, metavar="MIB",
              help="The largest request.")  # fmt: skip
@click.option("--queue", "queue_tokens", type=FROM_ZERO, default=0, metavar="TOKENS",
              help="Work that may wait for a model; 0 for the usual bound.")  # fmt: skip
@click.option("--timeout", type=_SECONDS, default=3600, show_default=True, metavar="SECONDS",
              help="The longest that a request may take.")  # fmt: skip
@click.option("--grace", type=_SECONDS, default=30, show_default=True, metavar="SECONDS",
              help="How long requests may go on after SIGTERM.")  # fmt: skip
@click.option("--access-log", type=LOCAL, metavar="FILE",
              help="A line of JSON a request; - for standard error.")  # fmt: skip
@click.option("--audit", type=LOCAL, metavar="FILE",
              help="Who judged, trained, tried keys.  [default: JUDGEMENTS.audit.jsonl]")  # fmt: skip
@click.option("--mcp", is_flag=True, help="Be an assistant's tools on standard input and output instead.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@click.option("--cluster", default="", metavar="ray|ADDRESS",
              help="Hold indexes and rankers on Ray: ray, started here, or a cluster.")  # fmt: skip
@click.option("--replicas", type=COUNT, default=1, show_default=True,
              help="How many of each part and each ranker the cluster holds.")  # fmt: skip
@click.option("--partial", is_flag=True, help="Answer without the parts that do not answer, and say so.")
@options_of(ComputeOptions)
def command(
    compute: ComputeOptions,
    indexes: tuple[str, ...],
    rankers: tuple[str, ...],
    systems: tuple[str, ...],
    split: str,
    pool: str,
    queries: Path | None,
    qrels: Path | None,
    runs: tuple[str, ...],
    judgements: Path | None,
    host: str,
    port: int,
    key_file: Path | None,
    allow_hosts: tuple[str, ...],
    max_body: int,
    queue_tokens: int,
    timeout: float,
    grace: float,
    access_log: Path | None,
    audit: Path | None,
    mcp: bool,
    opens: bool,
    cluster: str,
    replicas: int,
    partial: bool,
) -> None:
    """Serve indexes and rankers: the API that rerank clients speak, and a page in the browser.

    Without any INDEX or --ranker, what rankhouse demo left in ./demo is served.
    """
    with needs("serve", "rankhouse serve"):
        from rankhouse.serve.host import serving, settings
        from rankhouse.serve.host.settings import Limits, ServeOptions
    options = settings.demo_options(settings.DEMO) if not (indexes or rankers) else ServeOptions()
    judgements = judgements or options.judgements
    if audit is None and judgements is not None:
        audit = judgements.with_name(f"{judgements.name}.audit.jsonl")
    named, served = settings.named_systems(systems, settings.named_rankers(rankers) or options.rankers)
    options = ServeOptions(
        indexes=settings.named_indexes(indexes) or options.indexes,
        rankers=served,
        systems=named,
        queries=queries or options.queries,
        qrels=qrels or options.qrels,
        runs=settings.named_runs(runs) or options.runs,
        judgements=judgements,
        split=split, pool=pool, host=host, port=port, key_file=key_file, allow_hosts=allow_hosts,
        access_log=access_log, audit=audit, compute=compute,
        limits=Limits(max_body << 20, request=timeout, grace=grace, queue_tokens=queue_tokens),
        cluster=cluster, replicas=replicas, partial=partial,
    )  # fmt: skip
    _refuse_idle(options)
    if mcp:
        reason = "--mcp talks on standard input and output, to the program that started it"
        idle(reason, "host", "port", "key_file", "allow_hosts", "max_body", "grace", "access_log", "opens")
        serve_assistant(options)
    else:
        serving.start(options, lambda: _cluster_of(options), opens=opens)


def _refuse_idle(options: ServeOptions) -> None:
    """Refuse what would change nothing in this service."""
    if not options.cluster:
        idle("only a --cluster has parts and rankers of which one may die", "replicas", "partial")
    if not options.indexes:
        idle(
            "it belongs to an index, and none is served", "systems", "queries", "qrels", "runs", "judgements"
        )
    if not options.rankers and options.judgements is None:
        idle("no ranker is served", "split", "pool", "queue_tokens", "precision", "device", "threads")


def serve_assistant(options: ServeOptions, beside: Callable[[Service], None] | None = None) -> None:
    """Talk to the assistant that started the program, until it hangs up; ``beside`` runs in a thread."""
    with needs("mcp", "--mcp"):
        from rankhouse.serve import mcp
    from rankhouse.serve.host.service import open_service

    with _cluster_of(options) as cluster:
        service = open_service(options, cluster)
        if beside is not None:
            threading.Thread(target=beside, args=(service,), name="beside", daemon=True).start()
        try:
            mcp.run(service.catalogue, service.warm)
        finally:
            service.close()


def _cluster_of(options: ServeOptions) -> AbstractContextManager[RemoteHolder | None]:
    """Connect to the cluster that holds indexes and rankers, if there is one."""
    if not options.cluster:
        return nullcontext()
    from rankhouse.cluster.service import service_cluster

    return service_cluster(options)
