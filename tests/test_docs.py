"""Every code block of the README and the docs runs, and prints what the page says it prints.

python blocks of a page share one namespace; console blocks share one folder, and what stands below a command
is its standard output. Blocks of other languages are not run, nor console blocks without a "$".
"""

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENVIRONMENT = os.environ | {
    "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}",
    "COLUMNS": "110",
    "NO_COLOR": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def commands(block: str):
    """Take a console block apart: (command, expected output), continued lines joined."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and line.startswith("> ") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", "")
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def run_console(block: str, folder: Path, page: Path):
    for command, expected in commands(block):
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{page.name}: {command}\n{done.stderr}"
        shown = "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())
        wanted = "\n".join(line.rstrip() for line in expected.strip("\n").splitlines())
        if wanted:
            assert shown == wanted, f"{page.name}: {command}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "console":
            run_console(block, tmp_path, page)
        else:
            with contextlib.redirect_stdout(sys.stderr):
                exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), f"{page.name} points at {target}"
