"""The command line: one program, one sub-command for each step of a pipeline, joined by plain files."""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from rankhouse import __version__
from rankhouse.cli import console
from rankhouse.core.errors import MissingExtra, RankhouseError, WrongUse, did_you_mean, visible

# Group -> name -> (module under cli.commands, with its function unless that is ``command``; one line for the
# list); modules are imported when needed.
GROUPS = {
    "Search": {
        "index": ("index", "Build an index from a corpus, or add to one."),
        "search": ("search", "Rank an index's documents for queries."),
        "encode": ("index:encode_command", "Write document vectors into an index."),
        "rerank": ("rerank", "Rerank a run with a neural ranker."),
        "fuse": ("combine:fuse_command", "Fuse several runs into one."),
    },
    "Teach": {
        "label": ("label", "Label pairs by judgements and teachers."),
        "train": ("train", "Train a ranker on judgements or labelled pairs."),
        "adapt": (
            "train:adapt_command",
            "Teach a ranker without judgements, by a teacher and the documents.",
        ),
        "calibrate": ("calibrate", "Fit the probability that a ranker's score stands for."),
        "threshold": (
            "labels:threshold_command",
            "Choose a teacher's threshold on judged pairs, and say what it keeps.",
        ),
        "pretrain": ("train:pretrain_command", "Pre-train a small T5 on a text collection."),
        "models": (
            "doctor:models_command",
            "List published checkpoints that are known to work, and the default.",
        ),
    },
    "Measure": {
        "evaluate": ("evaluate", "Measure runs against judgements, with significance."),
        "paired-wins": (
            "evaluate:paired_wins_command",
            "Count the queries that only one of two runs answers rightly (McNemar).",
        ),
        "axioms": ("axioms", "Count which axioms of retrieval the order of runs obeys."),
    },
    "Explain": {
        "explain": ("explain", "Say why a document scores what it scores, or stands above another."),
        "figure": ("explain:figure_command", "Draw what a ranker's vectors or its attention see."),
    },
    "Serve and scale": {
        "up": ("serve:up_command", "From a folder of your own files to an open search page."),
        "serve": ("serve", "Serve indexes and rankers: the API of rerank clients, and a page."),
        "push": ("stores:push_command", "Push an index into a vector store or search engine."),
        "pull": ("stores:pull_command", "Pull a run from a vector store or search engine."),
        "export": ("export", "Write a ranker, with a model card, or an index for other programs."),
        "merge": ("merge", "Join shards into one whole."),
    },
    "Experiments": {
        "demo": ("demo", "The whole pipeline on Python's own documentation."),
        "run": ("run", "Run a whole experiment from one file."),
    },
    "Data": {
        "doctor": ("doctor", "Check data, indexes, rankers and caches before time is spent."),
        "folds": ("folds", "Split queries into folds."),
        "subset": ("subset", "Take a subset of queries, judgements, a run or labelled pairs."),
        "combine": ("combine", "Combine runs, queries or judgements of different queries into one file."),
        "group-split": (
            "folds:group_split_command",
            "Split a catalogue's queries into parts that share no product.",
        ),
        "label-stats": (
            "labels:stats_command",
            "Count the pairs of PAIRS files, and their precision and recall.",
        ),
        "label-noise": (
            "labels:noise_command",
            "Make a known share of judgements wrong, to see how much a method tolerates.",
        ),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

RENAMED = {
    "parts": "group-split",
    "versus": "paired-wins",
    "pairs": "label-stats",
    "select": "subset",
    "concat": "combine",
}
"""Old name -> new one; the old names work in this version, and are not listed."""

_AGAIN = 0.02  # seconds after which a signal that fell into a callback is raised again
_MOST = 2_000  # characters of an error


class Commands(click.Group):
    """A group whose commands are imported when they are needed, so that --help stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of their groups."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's module and give its command."""
        del ctx
        name = RENAMED.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module, _, function = COMMANDS[name][0].partition(":")
        found: click.Command = getattr(
            importlib.import_module(f"rankhouse.cli.commands.{module}"), function or "command"
        )
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``help COMMAND`` as ``COMMAND --help``."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one lists the choices and the nearest."""
        if args and args[0] not in {**COMMANDS, **RENAMED} and not args[0].startswith("-"):
            guess = did_you_mean(args[0].lower(), COMMANDS)
            raise click.UsageError(
                f'there is no command "{args[0]}"{guess}; choose from: {", ".join(COMMANDS)}', ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(f"{name:<11}", line) for name, (_, line) in commands.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rankhouse")
def cli() -> None:
    """From your own files to a better ranking: index, search, rerank, fuse, evaluate.

    rankhouse help COMMAND  shows a command's options and an example; start with  rankhouse demo.
    """


class Termination(SystemExit):
    """SIGTERM came; cleaned up after as an interrupt is, then the exit code is 143."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def signals_heeded() -> Iterator[None]:
    """Turn SIGTERM into :class:`Termination` while a block runs, whatever a library makes of it.

    Python cannot raise out of a callback (a finaliser, a hook of a C library): it reports the exception and
    drops it. An interrupt that fell into one is sent again a moment later, until it gets through. Other
    libraries raise an exception of their own in its place (Ray's ``get`` and ``wait``: ``SystemExit(1)``); a
    block that ends after SIGTERM came has ended by it.

    Raises Termination: SIGTERM came while the block ran.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came, over = False, threading.Event()

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal came
        del number, frame
        came = True
        raise Termination

    def send_again(lost: sys.UnraisableHookArgs) -> None:
        number = _signal_of(lost.exc_type)
        if number is None:
            report(lost)
            return
        is_reported = threading.Event()

        def again() -> None:
            is_reported.wait()  # sent while this hook still waits for the thread, it would be dropped here
            if not over.wait(_AGAIN):
                signal.raise_signal(number)

        threading.Thread(target=again, daemon=True).start()
        is_reported.set()

    before, report = signal.signal(signal.SIGTERM, terminate), sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        yield
    except Termination:
        raise
    except BaseException as error:
        if came:
            raise Termination from error
        raise
    else:
        if came:
            raise Termination
    finally:
        sys.unraisablehook = report
        over.set()
        signal.signal(signal.SIGTERM, before)


def wait_asleep() -> None:
    """Let the threads of a network wait for one another asleep where other programs are at work.

    libgomp has them wait in a loop of 300,000 rounds, which is quickest on a quiet machine and takes the
    processor from the very thread that is waited for on a busy one (benchmarks/busy_machine.py). It reads
    the setting when PyTorch is loaded.
    """
    is_busy = hasattr(os, "getloadavg") and os.getloadavg()[0] >= 1
    if is_busy and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def main() -> None:
    """Run the program. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted, 143 terminated."""
    console.show_warnings_plainly()
    console.show_progress_as_bars()
    wait_asleep()
    try:
        # What a command returns here is the code of a click Exit, for example doctor's 1.
        with signals_heeded():
            code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except Termination as end:
        console.say("terminated")
        sys.exit(end.code)
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        click.echo(visible(message.getvalue()), err=True, nl=False)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        console.say("interrupted")
        sys.exit(130)
    except RankhouseError as error:
        text = str(error)  # which may quote a file's content at length
        more = f" ... ({len(text) - _MOST:,} characters more)" if len(text) > _MOST else ""
        console.say(f"rankhouse: {text[:_MOST]}{more}")
        sys.exit(2 if isinstance(error, WrongUse | MissingExtra) else 1)
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: nothing is wrong, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename!s:.300}: "
        why = "is too long for the name of a file" if error.errno == errno.ENAMETOOLONG else error.strerror
        console.say(f"rankhouse: {where}{why or error}")
        sys.exit(1)
    except UnicodeEncodeError as error:
        console.say(
            f'rankhouse: "{error.object[:200]}" holds a byte that is not UTF-8, which cannot be kept; '
            "give the file or folder of that name another one"
        )
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        console.say(f"rankhouse: there is not enough memory for this ({_first_line(error)}); ask for less")
        sys.exit(1)


def _signal_of(kind: type[BaseException]) -> int | None:
    if issubclass(kind, KeyboardInterrupt):
        return signal.SIGINT
    return signal.SIGTERM if issubclass(kind, Termination) else None


def _is_memory(error: Exception) -> bool:
    """Return whether memory ran out; torch says so by a RuntimeError."""
    text = str(error)
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or "no more was said"


if __name__ == "__main__":
    main()
