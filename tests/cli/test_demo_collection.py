"""Python's documentation as a collection: names, parsing, order."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankhouse.core.errors import MissingInput
from rankhouse.demo.builtin_docstrings import PUBLISHED_AS, compiled
from rankhouse.demo.collection import collect
from rankhouse.demo.source_docstrings import documented, parse, static_all


@pytest.fixture(scope="module")
def documents():
    return {document.id: document for document in collect()}


@pytest.fixture
def written(tmp_path):
    """Parse a small library given as module name -> source."""

    def write(**modules):
        parsed = []
        for name, code in modules.items():
            dotted = name.replace("__", ".")
            is_package = any(other.startswith(f"{name}__") for other in modules)
            path = tmp_path / (f"{name}/__init__.py" if is_package else f"{name}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(code, encoding="utf-8")
            parsed.append(parse(path, dotted))
        return {f"{d.module}.{d.path}".strip("."): d for d in documented(parsed)}

    return write


def test_the_collection_has_some_seven_thousand_documents_with_text_and_title(documents):
    assert 6_000 < len(documents) < 9_000
    assert all(d.title and d.text for d in documents.values())


def test_ids_are_unique_and_fit_run_files(documents):
    assert len(documents) == sum(1 for _ in collect())
    assert all(doc_id.split() == [doc_id] and doc_id.isascii() for doc_id in documents)


def test_collecting_twice_gives_the_same_documents_in_the_same_order(documents):
    assert list(collect()) == list(documents.values())


@pytest.mark.parametrize(
    "name",
    [
        "argparse.ArgumentParser.add_argument",  # written in a private base class
        "asyncio.gather",  # published by a package, written in a module of it
        "bytes.decode",  # built in
        "collections.abc.Mapping.get",  # written in a private module
        "csv.reader",  # written in C
        "datetime.datetime.strptime",  # in a private module since Python 3.12
        "hashlib",  # its docstring is assigned to __doc__
        "itertools.permutations",  # compiled in
        "json.JSONDecoder",
        "os.path.join",  # written in posixpath
        "os.path.splitext",  # its docstring is borrowed afterwards
        "os.listdir",  # written in C, as posix or nt
        "pathlib.Path.exists",  # in a private module in Python 3.13
        "random.choice",  # a method of a hidden object
        "random.random",  # the same, in C
        "re.Pattern.sub",  # a class that no module names
        "socket.socket.connect",  # a C base class
        "str.split",
        "tarfile.open",  # a class method given as a function
        "textwrap.wrap",
        "topic:assignment",
    ],
)
def test_things_bear_the_names_their_users_know(documents, name):
    assert name in documents


def test_private_names_tests_and_programs_are_left_out(documents):
    assert not any(part.startswith("_") for doc_id in documents for part in doc_id.split("."))
    left_out = ("test.", "idlelib.", "lib2to3.", "turtledemo.", "unittest.test.", "tkinter.test.", "pip.")
    assert not [doc_id for doc_id in documents if f"{doc_id}.".startswith(left_out)]


def test_titles_are_signatures_and_the_text_ends_with_the_whereabouts_in_words(documents):
    assert documents["textwrap.wrap"].title == "textwrap.wrap(text, width=70, **kwargs)"
    assert documents["textwrap"].title == "module textwrap"
    assert documents["str.split"].title == "str.split(sep=None, maxsplit=-1)"
    assert documents["textwrap.wrap"].text.endswith("\n\nFunction wrap, module textwrap.")
    assert documents["str.split"].text.endswith("\n\nMethod split of class str, built in.")
    assert documents["topic:with"].title == 'with: The "with" statement'
    assert max(len(d.title) for d in documents.values()) < 200


def test_no_python_source_of_the_library_is_imported():
    code = (
        "import sys, sysconfig; sysconfig.get_path('stdlib')\n"
        "from rankhouse.demo.collection import collect; before = set(sys.modules)\n"
        "n = sum(1 for _ in collect())\n"
        "new = [m for m in set(sys.modules) - before if getattr(sys.modules[m], '__file__', None)]\n"
        "import json; print(json.dumps([n, [m for m in new if sys.modules[m].__file__.endswith('.py')]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, imported = json.loads(done.stdout)
    assert count > 6_000
    assert set(imported) <= {"pydoc_data", "pydoc_data.topics"}


def test_a_python_without_its_sources_is_refused_with_a_hint(tmp_path):
    with pytest.raises(MissingInput, match=r"holds 0 modules .* libpython3-stdlib"):
        list(collect(tmp_path))


def test_a_definition_is_published_by_its_package_and_given_once(written):
    found = written(
        pack="from pack.inner import Thing, _hidden\nfrom .other import *\n",
        pack__inner='class Thing:\n    """A thing."""\n    def use(self, how=1):\n        """Use it."""\n',
        pack__other='__all__ = ["act"]\ndef act():\n    """Act."""\ndef rest():\n    """Rest."""\n',
    )
    assert set(found) == {"pack.Thing", "pack.Thing.use", "pack.act", "pack.other.rest"}


def test_methods_of_a_private_base_class_belong_to_its_first_public_heir(written):
    found = written(
        m='class _Base:\n    """Base."""\n    def go(self):\n        """Go."""\n'
        "class _Middle(_Base):\n    pass\n"
        'class Heir(_Middle):\n    """Heir."""\n'
        'class Later(_Base):\n    """Later."""\n'
    )
    assert set(found) == {"m.Heir", "m.Heir.go", "m.Later"}


def test_the_heir_s_own_method_comes_before_the_private_base_s(written):
    found = written(
        m='class _Base:\n    def go(self):\n        """Base."""\n'
        'class Heir(_Base):\n    def go(self):\n        """Own."""\n'
    )
    assert found["m.Heir.go"].doc == "Own."


def test_functions_made_of_a_hidden_object_s_methods_are_functions_of_the_module(written):
    found = written(
        m='class Dice:\n    """Dice."""\n    def roll(self, n):\n        """Roll."""\n'
        "_dice = Dice()\nroll = _dice.roll\n"
    )
    assert set(found) == {"m.Dice", "m.roll"}
    assert found["m.roll"].signature == "(n)"


def test_docstrings_assigned_afterwards_are_found(written):
    found = written(
        m='__doc__ = "The module."\ndef f(): pass\nf.__doc__ = "F."\n'
        'def _g():\n    """G."""\ndef g(): pass\ng.__doc__ = elsewhere._g.__doc__\n'
    )
    assert {name: d.doc for name, d in found.items()} == {"m": "The module.", "m.f": "F.", "m.g": "G."}


def test_every_branch_is_read_and_the_first_of_a_name_wins(written):
    found = written(
        m='try:\n    import fast\nexcept ImportError:\n    def f():\n        """Slow."""\n'
        'if 1:\n    def g():\n        """One."""\nelse:\n    def g():\n        """Two."""\n'
    )
    assert {name: d.doc for name, d in found.items()} == {"m.f": "Slow.", "m.g": "One."}


def test_signatures_show_defaults_without_self_annotations_and_long_expressions(written):
    found = written(
        m="class C:\n"
        '    """C."""\n'
        "    def __init__(self, a: int, /, b=2, *rest, key=[1, 2], **more):\n"
        '        """Make it."""\n'
        "    @staticmethod\n"
        "    def s(x, *, long=a_function_of(many, arguments, here)):\n"
        '        """S."""\n'
        "    @property\n"
        "    def p(self):\n"
        '        """P."""\n'
        "def f(" + ", ".join(f"argument_number_{i}" for i in range(20)) + "):\n"
        '    """F."""\n'
    )
    assert found["m.C"].signature == "(a, b=2, *rest, key=[1, 2], **more)"
    assert found["m.C"].doc == "C.\n\nMake it."
    assert found["m.C.s"].signature == "(x, *, long=...)"
    assert (found["m.C.p"].kind, found["m.C.p"].signature) == ("property", "")
    assert found["m.f"].signature.endswith(", ...)")
    assert len(found["m.f"].signature) <= 100


def test_all_is_read_as_far_as_it_is_written_out(tmp_path):
    path = tmp_path / "m.py"
    path.write_text('__all__ = ["a"]\n__all__ += ["b"]\n__all__.extend(["c"])\n', encoding="utf-8")
    assert static_all(parse(path, "m")) == ({"a", "b", "c"}, True)
    path.write_text('__all__ = ["a"]\n__all__.extend(name for name in dir())\n', encoding="utf-8")
    assert static_all(parse(path, "m")) == ({"a"}, False)


def test_compiled_modules_add_only_what_their_public_module_exports():
    everything = {d.path.partition(".")[0] for d in compiled("csv")}
    some = {d.path.partition(".")[0] for d in compiled("csv", {"reader"})}
    assert {"reader", "writer", "Dialect"} <= everything
    assert some <= {"", "reader"}


def test_no_module_written_in_python_is_loaded_as_a_compiled_one(monkeypatch):
    monkeypatch.setitem(PUBLISHED_AS, "antigravity", "antigravity")
    assert list(compiled("antigravity")) == []
    assert "antigravity" not in sys.modules


def test_hooks_that_a_program_replaced_are_described_as_they_were(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", print)
    assert any(d.path == "unraisablehook" and "unraisable" in d.doc for d in compiled("sys"))


def test_a_library_elsewhere_can_be_read(tmp_path):
    for i in range(60):
        (tmp_path / f"mod{i:02}.py").write_text(f'"""Module number {i}."""\n', encoding="utf-8")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "hidden.py").write_text('"""Hidden."""\n', encoding="utf-8")
    found = {d.id: d for d in collect(Path(tmp_path))}
    assert found["mod07"].text == "Module number 7.\n\nModule mod07."
    assert "test.hidden" not in found
