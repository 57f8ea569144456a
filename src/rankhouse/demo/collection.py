"""Python's own documentation as a collection, read from the Python that runs.

Ids are qualified names as their users write them: ``textwrap.wrap``, ``str.split``, ``topic:assignment``.
Order and content are the same each time for one Python version on one platform.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rankhouse.core.errors import MissingInput
from rankhouse.core.nouns import Document

PROGRAM = Path(__file__).with_name("docstrings.py")
FEWEST_DOCUMENTS = 1_000


def collect() -> Iterator[Document]:
    """Stream the documentation of the Python that runs, about 7,300 documents.

    The modules are imported by a process of its own.

    Raises:
        MissingInput: The standard library is absent or without docstrings, as some minimal installations are.
    """
    command = [sys.executable, "-I", "-W", "ignore", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - this very interpreter
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) < FEWEST_DOCUMENTS:
        fault = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise MissingInput(
            f"{sys.executable} documents {len(lines)} names{f' ({fault})' if fault else ''}; the demo reads "
            "the standard library's docstrings and needs an installation that brings them, as python.org's "
            "and most distributions' do (on Debian and Ubuntu: apt install libpython3-stdlib)"
        )
    for line in lines:
        yield Document(**json.loads(line))
