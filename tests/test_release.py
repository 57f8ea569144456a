"""Sources of a release: headers, modules, pinned actions."""

import importlib.util
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "rankhouse"
MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]


def of_ci(name):
    return opened(name, ROOT / ".ci" / f"{name}.py")


def opened(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheels():
    return of_ci("wheels")


def included(path, known=()):
    """Return the headers of ours that a file includes, and what these include."""
    names = re.findall(r'(?m)^#include "([\w./]+\.h)"', path.read_text())
    found = {(path.parent / name).resolve() for name in names}
    for one in found - set(known):
        found |= included(one, {*known, *found})
    return found


def test_every_source_is_a_module_and_every_header_is_packed_and_rebuilds_it():
    assert {ROOT / source for one in MODULES for source in one["sources"]} == set(SOURCES.rglob("*.c"))
    packed = {ROOT / line.split()[1] for line in (ROOT / "MANIFEST.in").read_text().splitlines()}
    assert packed == set(SOURCES.rglob("*.h"))
    makefile = (ROOT / "Makefile").read_text()
    for one in MODULES:
        (source,) = one["sources"]
        headers = included(ROOT / source)
        assert {ROOT / name for name in one.get("depends", ())} == headers
        assert all(str(path.relative_to(ROOT)) in makefile for path in {ROOT / source, *headers})


def test_processors_are_asked_and_not_the_library_of_a_compiler():
    """Zig's compiles the wheels, and knows no instruction: all loops fell back to plain ones there."""
    sources = [*SOURCES.rglob("*.c"), *SOURCES.rglob("*.h")]
    assert not [
        p.name for p in sources if re.search(r"__builtin_cpu_supports\(|target_clones", p.read_text())
    ]


def test_a_wheel_without_compiled_modules_has_the_same_other_settings(wheels, tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    wheels.without_modules(tmp_path / "pyproject.toml")
    before = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert before["tool"]["setuptools"].pop("ext-modules")
    assert tomllib.loads((tmp_path / "pyproject.toml").read_text()) == before


def test_a_folder_that_exists_is_left_alone(wheels, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["wheels.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="exists; name a folder that does not"):
        wheels.main()


def test_actions_are_pinned_and_only_the_upload_may_publish():
    workflow = (ROOT / ".github" / "workflows" / "publish.yml").read_text()
    used = re.findall(r"uses: (\S+)", workflow)
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in used)
    assert workflow.count("id-token: write") == 1
    assert workflow.count("contents: write") == 1  # the site's
    assert workflow.count("make docs-version") == 1
    assert "permissions: {}" in workflow


def test_what_breaks_callers_of_public_names_is_found(tmp_path):
    griffe = pytest.importorskip("griffe")

    def package(folder, search, method):
        (tmp_path / folder / "rankhouse").mkdir(parents=True)
        inner = f"{search}\n\nclass Index:\n    def {method}(self): ...\n\ndef inner{folder}(a): ...\n"
        (tmp_path / folder / "rankhouse" / "api.py").write_text(inner)
        names = "".join(f"from rankhouse.api import {name} as {name}\n" for name in ("search", "Index"))
        (tmp_path / folder / "rankhouse" / "__init__.py").write_text(f"from os import path\n{names}")
        return griffe.load("rankhouse", search_paths=[tmp_path / folder], resolve_aliases=True)

    def breaks(*given):
        return of_ci("api").breaks(
            package("old", "def search(index, k=10): ...", "open"), package("new", *given)
        )

    found = breaks("def search(index): ...", "opened")
    assert [line.split(": ")[:3] for line in found] == [
        ["rankhouse.search", "search", "Parameter was removed"],
        ["rankhouse.Index", "open", "Public object was removed"],
    ]
    for folder in ("old", "new"):
        shutil.rmtree(tmp_path / folder)
    assert breaks("def search(index, k=10, more=None): ...", "open") == []


def test_the_emulated_python_gets_its_own_name_and_every_argument(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci")  # the script imports its neighbour
    folder, tools = tmp_path / "a folder", tmp_path / "tools"
    tools.mkdir()
    emulator = tools / "qemu-aarch64"
    emulator.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    emulator.chmod(0o755)
    python = of_ci("aarch64").make_environment(folder, folder / "root")
    told = subprocess.run(
        [python, "-c", "print('two words')"], env={"PATH": f"{tools}:/usr/bin:/bin"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    root = f"{folder}/root"
    expected = ["-L", root, "-0", str(python), f"{root}/usr/bin/python3.11", "-c", "print('two words')"]
    assert told.stdout.splitlines() == expected
    assert f"home = {root}/usr/bin" in (folder / "env" / "pyvenv.cfg").read_text()


@pytest.mark.parametrize("name", ["x86_64", "AMD64", "aarch64", "arm64"])
def test_blingfire_is_required_where_it_is_imported_from(name, monkeypatch):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = [re.match(r"([\w-]+)>=[\d.]+; platform_machine in '([\w ]+)'", one) for one in extras["neural"]]
    (package,) = [one[1] for one in found if one and name in one[2].split()]
    monkeypatch.setattr("platform.machine", lambda: name)
    words = opened("words_elsewhere", SOURCES / "text" / "words.py")
    assert package.replace("-", ".") == words.BLINGFIRE
