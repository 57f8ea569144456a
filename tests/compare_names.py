"""Which tests of one commit another does not have:  python tests/compare_names.py OLD NEW.

A test is known by its name, wherever its file stands; the number of its cases is not looked at.
"""

import ast
import subprocess
import sys
from collections import defaultdict


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def tests_of(commit):
    """Return the files in which each name of a test stands, once for each time."""
    found = defaultdict(list)
    for path in git("ls-tree", "-r", "--name-only", commit, "tests").splitlines():
        if path.endswith(".py") and path.rpartition("/")[2].startswith("test_"):
            for node in ast.walk(ast.parse(git("show", f"{commit}:{path}"))):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    found[node.name].append(path)
    return found


def main():
    old, new = (tests_of(commit) for commit in sys.argv[1:3])
    for sign, these, others in (("-", old, new), ("+", new, old)):
        for name in sorted(these, key=lambda name: (these[name][0], name)):
            if len(these[name]) > len(others.get(name, ())):
                print(sign, f"{these[name][0]}::{name}")


if __name__ == "__main__":
    main()
