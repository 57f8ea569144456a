"""rankhouse export: a ranker for sentence-transformers, transformers and the hub, with its model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import needs
from rankhouse.page.tables import CommandResult


@verb("export", "rankhouse export mine --license apache-2.0 --data 'SciFact, CC BY 4.0' --out for-others")
def command(
    *,
    ranker: Annotated[str, Option("The ranker.", "source", positional=True)],
    out: Annotated[Path, Option("The folder to make.", "local")],
    license_id: Annotated[
        str, Option("By the hub's list: apache-2.0 ...; without it the card says TODO.", flag="--license")
    ] = "",
    data: Annotated[str, Option("What it learned from, and under which terms, for the card.")] = "",
    base_model: Annotated[
        str, Option("What it began with, OWNER/NAME.", default="as the training's command says")
    ] = "",
    language: Annotated[tuple[str, ...], Option("Of its texts: en; repeat for more.")] = (),
    to: Annotated[str, Option("Also upload the folder to the hub, as OWNER/NAME.")] = "",
    overwrite: Annotated[bool, Option("Add a commit where that repository is there already.")] = False,
) -> CommandResult:
    """Write RANKER, a cross-encoder, bi-encoder or monoT5, as sentence-transformers or transformers open it.

    The scores are the same. README.md is its model card: data, command, numbers with intervals, limits.
    """
    with needs("neural", "export"):
        from rankhouse.hosts.model_card import ModelCard, upload
        from rankhouse.hosts.sentence_transformers import save
    if not to:
        idle("it is for --to, which is not given", "overwrite")
    card = ModelCard(license_id, data, base_model, language)
    save(ranker, out, card=card, name=to)
    left = (out / "README.md").read_text(encoding="utf-8").count("TODO")
    if left:
        console.note(f"{out / 'README.md'}: {left} places say TODO; fill them in before you share it")
    address = upload(out, to, overwrite=overwrite) if to else ""
    facts = {"folder": str(out), "todo": left, "address": address}
    return CommandResult(facts, f"written: {out}" + (f", uploaded to {address}" if to else ""))
