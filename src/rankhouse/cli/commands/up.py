"""rankhouse up: from a folder of files to the open page in one command."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.commands.serve import serve_assistant
from rankhouse.cli.options import BYTES, LOCAL, PATH, idle
from rankhouse.core.errors import needs


@click.command("up", epilog="Example:  rankhouse up ~/notes --open")
@click.argument("folder", type=LOCAL)
@click.option("--port", type=click.IntRange(0, 65_535), default=8080, show_default=True,
              help="The port; 0 takes a free one.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--key-file", type=PATH, help="Keys of those who may come in, NAME KEY [read] a line.")
@click.option(
    "--ranker", "rankers", multiple=True, metavar="[NAME=]RANKER", help="A ranker to serve as well."
)
@click.option("--include", multiple=True, metavar="GLOB", help='Only these files: "*.md", "docs/**".')
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not these, besides what .gitignore says.")
@click.option("--max-size", "largest", type=BYTES, default="20M", show_default=True, metavar="BYTES",
              help="The largest file of text: 500K, 20M, 1G.")  # fmt: skip
@click.option("--lexical", is_flag=True, help="No vectors: search by words only.")
@click.option("--mcp", is_flag=True, help="Be an assistant's tools on standard input and output instead.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def command(
    folder: Path,
    port: int,
    host: str,
    key_file: Path | None,
    rankers: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    largest: int,
    lexical: bool,
    mcp: bool,
    opens: bool,
) -> None:
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
    named = settings.named_rankers(rankers)
    options = ServeOptions(host=host, port=port, key_file=key_file)
    if mcp:
        idle("--mcp talks on standard input and output", "host", "port", "key_file", "opens")
    else:
        serving.check_exposure(options)
        serving.bind(host, port).close()  # a port in use is said before any work
    with prepare.claimed(folder, FolderChoice(include, exclude, largest)) as place:
        if not prepare.is_indexed(place):
            prepare.index_folder(place)
        encoder = None if lexical else prepare.EncoderAtHand.find()
        if encoder is not None:
            named = {settings.ENCODER: encoder.spec, **named}
        elif not lexical:
            console.say('search is by words only; by meaning too with  pip install "rankhouse[neural,demo]"')
        options = ServeOptions(
            {settings.short_name(str(folder)): place.index},
            named,
            judgements=place.judgements,
            trainings=place.trainings,
            audit=place.state / "audit.jsonl",
            contents=place.contents,
            host=host,
            port=port,
            key_file=key_file,
            late=frozenset({settings.ENCODER}) if encoder is not None else frozenset(),
        )
        if mcp:
            serve_assistant(options, kept(place, encoder))
        else:
            serving.start(options, opens=opens, beside=kept(place, encoder))
