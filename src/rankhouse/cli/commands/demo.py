"""rankhouse demo: the whole line on Python's own documentation."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli.options import LOCAL, as_json
from rankhouse.demo.show import demo


@click.command("demo", epilog="Example:  rankhouse demo --out demo")
@click.option("--out", type=LOCAL, default=Path("demo"), show_default=True, help="The folder to work in.")
@click.option("--lexical", is_flag=True, help="Only the lexical systems: no MiniLM, a few seconds.")
@as_json
def command(out: Path, lexical: bool, as_json: bool) -> None:
    """Index Python's documentation as found on this machine, ask it questions, and evaluate the answers."""
    demo(out, as_json=as_json, lexical=lexical)
