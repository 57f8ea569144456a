"""rankhouse serve: indexes and rankers for every client, and a page to search, compare, explain and judge."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.app import console
from rankhouse.app.options import PATH
from rankhouse.core.errors import MissingExtra


@click.command("serve", epilog="Example:  rankhouse serve my.index --ranker ce='crossencoder(\"DIR\")'")
@click.argument("indexes", nargs=-1, type=PATH)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8080, show_default=True,
              help="The port; 0 takes a free one.")  # fmt: skip
def command(indexes: tuple[Path, ...], host: str, port: int) -> None:
    """Serve indexes and rankers over HTTP."""
    try:
        from rankhouse.app.serve.host.service import open_service
        from rankhouse.app.serve.host.serving import address_of, bind, check_exposure, serve
        from rankhouse.app.serve.host.settings import ServeOptions
    except ImportError as error:
        raise MissingExtra("rankhouse serve", "serve") from error
    options = ServeOptions({path.name: path for path in indexes}, host=host, port=port)
    check_exposure(options)
    listener = bind(host, port)
    service = open_service(options)
    console.say(f"rankhouse serves {address_of(host, listener)}")
    serve(service, listener)
