"""What a release is built from: headers, modules, pinned actions."""

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "rankhouse"
MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]


@pytest.fixture
def wheels():
    spec = importlib.util.spec_from_file_location("wheels", ROOT / ".ci" / "wheels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    assert "permissions: {}" in workflow
