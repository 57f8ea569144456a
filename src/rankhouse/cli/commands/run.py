"""rankhouse run: a whole experiment from one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
from rich.text import Text

from rankhouse.cli import console, main
from rankhouse.cli.options import OUTPUT_FILE, PLANNED, NeutralOption, verb
from rankhouse.cli.shards import ClusterChoice
from rankhouse.cluster.session import ClusterOptions
from rankhouse.core.arguments import Option
from rankhouse.core.errors import MissingInput
from rankhouse.io.outputs import check_own_folder, only_writer, real_path
from rankhouse.io.scratch import tidy
from rankhouse.page.tables import CommandResult
from rankhouse.recipes import report
from rankhouse.recipes.execute import HASHES, State, carry_out, standing, write_manifest
from rankhouse.recipes.parse import read_recipe
from rankhouse.recipes.plan import RecipePlan, make_plan
from rankhouse.recipes.sources import Contents, Sources
from rankhouse.recipes.tables import check_tables, make_tables
from rankhouse.recipes.values import Results


class ProgramCommands:
    """The commands of this program, for recipes."""

    names = tuple(main.COMMANDS)

    def command(self, name: str) -> click.Command | None:
        """Import a command."""
        return main.cli.get_command(click.Context(main.cli), name)

    def read(self, command: click.Command, arguments: Sequence[str]) -> dict[str, Any]:
        """Let a command read its words, without a look at what it would read or write."""
        with command.make_context(command.name, list(arguments), obj=PLANNED) as context:
            return dict(context.params)

    def writes(self, parameter: click.Parameter) -> bool:
        """Return whether an option names a file that the command writes."""
        return parameter.type is OUTPUT_FILE

    def is_neutral(self, parameter: click.Parameter) -> bool:
        """Return whether an option changes no result."""
        return isinstance(parameter, NeutralOption)


@verb("run", "rankhouse run recipes/first-stage.toml --set data.root=~/collections --dry-run")
def command(
    *,
    recipe: Annotated[Path, Option(positional=True)],
    changes: Annotated[
        tuple[str, ...], Option("Change an entry: loop.seed=[1,2] ...", flag="--set", metavar="KEY=VALUE")
    ] = (),
    only: Annotated[
        tuple[str, ...], Option("Of the loops, only this value; give it once for each.", metavar="VALUE")
    ] = (),
    smallest: Annotated[bool, Option("Apply the recipe's table [smallest].")] = False,
    out: Annotated[
        Path | None, Option("The result's folder.", "local", default="the recipe's name with .out")
    ] = None,
    dry_run: Annotated[bool, Option("Show every command and what is done already; run nothing.")] = False,
    partial: Annotated[bool, Option("Skip what needs absent data, and do the rest.")] = False,
    download: Annotated[bool, Option("Allow public collections and checkpoints to be fetched.")] = False,
    strict: Annotated[bool, Option("Exit with 1 if an expected number is not met.")] = False,
    cluster: ClusterChoice,
) -> CommandResult:
    """Carry out RECIPE, a TOML file of data, steps, loops, tables and expected numbers.

    What is done already is kept; a killed run resumes. See docs/recipes.md.
    """
    where = None if cluster.cluster is None else cluster.options
    folder = real_path(out or Path(f"{recipe.stem}{'.smallest' if smallest else ''}.out"))
    file = read_recipe(recipe, changes, smallest=smallest, only=only)
    contents = Contents(folder / HASHES)
    plan = make_plan(file, Sources(file, contents, download=download), folder, ProgramCommands())
    check_tables(plan)
    report.check_figures(plan)
    if dry_run:
        return show_plan(plan, folder, contents)
    if plan.absent and not (partial or file.recipe.partial):
        raise MissingInput(_absent(plan))
    with only_writer(folder):
        check_own_folder(folder, (HASHES,))
        tidy(folder)
        folder.mkdir(parents=True, exist_ok=True)
        contents.save()
        states = _carried_out(plan, folder, contents, where)
        results = Results(plan, states, folder)
        result = report.Result(plan, states, make_tables(plan, results), report.make_figures(plan, results))
        write_manifest(plan, states, folder)
        files = report.write_results(result, folder)
    facts = report.record(result) | {"files": [str(path) for path in files]}
    return CommandResult(facts, lambda: show(result, files), code=int(strict and bool(result.differing)))


def _carried_out(
    plan: RecipePlan, folder: Path, contents: Contents, where: ClusterOptions | None
) -> list[State]:
    if where is None:
        return carry_out(plan, folder, contents, console.say)
    from rankhouse.cluster.recipes import carry_out_on_cluster

    return carry_out_on_cluster(plan, folder, contents, say=console.say, cluster=where)


def _absent(plan: RecipePlan) -> str:
    """Say what is not there, and how to go on."""
    reasons = "\n  ".join(plan.absent)
    return (
        f"not everything this recipe needs is there, so nothing was done:\n  {reasons}\n"
        "put them there, name other places with  --set data.NAME=PATH , or do what can be done with --partial"
    )


def show_plan(plan: RecipePlan, folder: Path, contents: Contents) -> CommandResult:
    """Show every command in order, and how it stands."""
    states = [standing(task, folder, contents) for task in plan.tasks.values()]
    steps = [
        {"step": s.task.step, "loop": dict(s.task.labels), "state": s.state}
        | {"key": s.task.key, "command": s.task.command_line, "inputs": s.task.inputs.identities}
        for s in states
    ]

    def tell() -> None:
        for state in states:
            head = Text(f"{state.state:<12}", style="green" if state.state == "kept" else "yellow")
            head.append(state.task.title, style="bold")
            console.results.print(head, soft_wrap=True)
            console.results.print(f"            {state.task.command_line}", markup=False, soft_wrap=True)
        for reason in plan.absent:
            console.say(f"absent: {reason}")
        left = sum(state.state == "to do" for state in states)
        console.say(f"{len(states)} steps, {left} to do; commands are for the folder {folder}")

    return CommandResult({"out": str(folder), "steps": steps, "absent": plan.absent}, tell)


def show(result: report.Result, files: list[Path]) -> None:
    """Print the tables, the expected numbers and where the files are."""
    for shown in (table for table in result.tables if table.comparison is not None):
        console.print_table(shown.table, shown.name)
        for text in (shown.note, *shown.remarks):
            if text:
                console.results.print(text, style="dim", markup=False, soft_wrap=True)
        if shown.checks:
            console.print_table(report.checks_table(shown), f"{shown.name}: expected numbers")
    for drawn in result.figures:
        console.print_table(drawn.table, drawn.name)
    passed_over = [state.task.title for state in result.states if state.record is None]
    for reason in result.plan.absent:
        console.say(f"absent: {reason}")
    if passed_over:
        console.say(f"rankhouse skipped these steps, whose data are absent: {', '.join(passed_over)}")
    console.results.print(result.verdict, markup=False)
    reused = sum(state.state == "kept" for state in result.states)
    console.say(
        f"{len(result.states)} steps ({reused} kept), {result.seconds:.1f} s of work; written: "
        f"{', '.join(str(path) for path in files)}"
    )
