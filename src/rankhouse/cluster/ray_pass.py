"""What the process of a recipe's pass does, on the machine of the cluster where it runs."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click

from rankhouse.cluster.ray_beacon import sees
from rankhouse.cluster.ray_worker import Outcome, ended_by, wait_for
from rankhouse.core.errors import MissingInput, WrongUse
from rankhouse.recipes.execute.execute import call
from rankhouse.recipes.read.plan import Task


class Order(NamedTuple):
    """What the process of a pass has to know."""

    task: Task
    out: Path
    token: str


def do_pass(order: bytes) -> Outcome:
    """Do one task in this process, on the machine of the cluster where it runs."""
    task, out, token = pickle.loads(order)  # noqa: S301 - from the one who asks
    said = io.StringIO()
    try:
        with ExitStack() as stack:
            if not sees(out, token):
                raise MissingInput(
                    f"{out}: is not to be seen from {os.uname().nodename}; a recipe on a cluster needs a "
                    "folder that all its machines share"
                )
            wait_for(out / task.folder, stack)
            with contextlib.redirect_stderr(said):
                text = call(task, out)
    except click.ClickException as error:
        return Outcome("failed", error.format_message(), WrongUse.__name__)
    except Exception as error:  # noqa: BLE001 - told to the one who asked
        return ended_by(error)._replace(state="failed")
    lines = said.getvalue().splitlines()
    warned = tuple(line.partition(": ")[2] for line in lines if line.startswith(("warning: ", "note: ")))
    return Outcome("done", text, warned=warned)
