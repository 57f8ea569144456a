"""docs/hosts.md: which versions of the frameworks passed which tests; read by nothing else.

    make hosts                    # installs the frameworks, 2.5 GB
    python benchmarks/hosts.py    # runs what  make test-hosts  runs, and writes the table of the page

A case of a framework's own suite is one that its class of tests brings; where a framework has no such class,
it is a test in which its evaluator or its pipeline runs unmodified on the adapter and is compared with the
command line. A test that did not pass stops the table from being written.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from xml.etree import ElementTree as ET

from rankhouse.page.tables import Table

ROOT = Path(__file__).parents[1]
PAGE, PYTHON = ROOT / "docs" / "hosts.md", ROOT / ".venv-hosts" / "bin" / "python"
BEGIN, END = "<!-- written by benchmarks/hosts.py -->\n", "<!-- to here -->"


class Host(NamedTuple):
    """A framework, its package, its tests, and which of them are its own suite or evaluator."""

    name: str
    package: str
    tests: str
    own: str


HOSTS = (
    Host("PyTerrier", "pyterrier", "test_pyterrier", r"\.Test|experiment_measures"),
    Host("MTEB", "mteb", "test_mteb", r"_(system|ranker)_(retrieves|reranks)"),
    Host("BEIR", "beir", "test_beir", r"beir_re(trieves|ranks)|pooled"),
    Host(
        "sentence-transformers",
        "sentence-transformers",
        "test_(sentence_transformers|export)",
        r"its_evaluators?_|rank_answers|opened_with_our|opens_in",
    ),
    Host("LangChain", "langchain-core", "test_langchain", r"\.TestSuite"),
    Host("LlamaIndex", "llama-index-core", "test_llamaindex", r"its_evaluator|query_engine"),
    Host("Haystack", "haystack-ai", "test_haystack", r"its_evaluators|a_pipeline"),
)


def tested(report: Path) -> list[str]:
    """Run the tests; return their names, all of which passed."""
    make = ["make", "--silent", "-C", str(ROOT), "test-hosts", f"REPORT=--junitxml={report}"]
    done = subprocess.run(make, check=False)
    # Pyserini, which needs Java, is no host: its page is tested where it is installed.
    found = ET.parse(report).getroot().iter("testcase")
    cases = [case for case in found if "pyserini" not in case.get("classname", "")]
    names = {f"{case.get('classname')}.{case.get('name')}": list(case) for case in cases}
    left = [
        name
        for name, said in names.items()
        if any(one.tag in ("failure", "error", "skipped") for one in said)
    ]
    if done.returncode or left:
        raise SystemExit(f"not passed: {', '.join(left) or 'see above'}; the table stays as it was")
    return list(names)


def versions() -> dict[str, str]:
    """Ask the environment which versions it holds."""
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "list", "--format", "json"]
    listed = json.loads(subprocess.run(pip, check=True, capture_output=True, text=True).stdout)
    return {one["name"]: one["version"] for one in listed}


def table(names: list[str], found: dict[str, str]) -> str:
    """Return the table of the page."""
    rows = []
    for host in HOSTS:
        its = [name for name in names if re.search(rf"hosts\.{host.tests}\b", name)]
        own = sum(bool(re.search(host.own, name)) for name in its)
        rows.append(
            (host.name, found[host.package], f"{own} of {own}", f"{len(its) - own} of {len(its) - own}")
        )
    others = [name for name in names if not any(re.search(rf"hosts\.{host.tests}\b", name) for host in HOSTS)]
    rows.append(
        ("lines of others' documentation, pages of this one", "", "", f"{len(others)} of {len(others)}")
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    head = Table(
        ("framework", "version", "its own suite or evaluator", "further tests"), tuple(rows)
    ).to_markdown()
    return f"Passed at commit {commit} on Python {sys.version.split()[0]}:\n\n{head}\n"


def main() -> None:
    with TemporaryDirectory() as folder:
        names = tested(Path(folder, "report.xml"))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(names, versions())}{END}{after}", encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
