"""Build what a release uploads: the source, a wheel per platform with compiled loops, and one without any.

    python -m pip install -c constraints.txt ".[release]"
    python .ci/wheels.py OUT [--only musllinux_1_2_aarch64 ...] [--once]

All platforms are compiled here by Zig, from the source distribution that is uploaded. Every wheel is built
twice, and the two have to be equal to the byte. A wheel that lacks a compiled module, that asks its platform
for more than its name promises, that uses more of Python than its stable interface, or whose contents are
not the package's is an error, and nothing is left in OUT.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from platform import machine

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
"""Platform of a wheel -> what Zig compiles for."""
WINDOWS = """
#define MS_WINDOWS
#define MS_WIN64
#define MS_COREDLL
#define NT_THREADS
#define WITH_THREAD 1
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED 1
#define SIZEOF_WCHAR_T 2
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define ALIGNOF_SIZE_T 8
#define ALIGNOF_MAX_ALIGN_T 16
#define HAVE_STDDEF_H 1
#define HAVE_STDINT_H 1
#define HAVE_UINTPTR_T 1
#define HAVE_WCHAR_H 1
#define HAVE_ERRNO_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TYPES_H 1
"""
"""What Python's headers ask about 64-bit Windows: facts of its pyconfig.h, which other systems lack."""
OF_WINDOWS = re.compile(r"python3\.dll|kernel32\.dll|api-ms-win-crt-[\w-]+\.dll", re.IGNORECASE)
PURE = "any"
OLDEST = "cp311"


def call(*words: object, cwd: Path | None = None, **more: str) -> None:
    """Run a program; what it prints is shown only where it fails."""
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=os.environ | more, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")


def epoch() -> str:
    """Return the time of the last commit, which files in the archives get."""
    asked = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def source(out: Path, time: str) -> Path:
    """Build the source distribution of the last commit; gives its path."""
    with tempfile.TemporaryDirectory() as scratch:
        tree, packed = Path(scratch) / "tree", Path(scratch) / "tree.tar"
        call("git", "archive", "--output", packed, "HEAD", cwd=ROOT)
        with tarfile.open(packed) as stream:
            stream.extractall(tree, filter="data")
        call(
            sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out,
            cwd=tree, SOURCE_DATE_EPOCH=time,
        )  # fmt: skip
    (path,) = out.glob("*.tar.gz")
    return path


def without_modules(pyproject: Path) -> None:
    """Take the compiled modules out of a copy of the settings."""
    tables = re.split(r"(?m)^(?=\[)", pyproject.read_text(encoding="utf-8"))
    pyproject.write_text(
        "".join(t for t in tables if "ext-modules" not in t.split("\n")[0]), encoding="utf-8"
    )


def wheel(archive: Path, platform: str, out: Path, time: str) -> Path:
    """Build the wheel of a platform from the source distribution; gives its path."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(archive) as stream:
            stream.extractall(scratch, filter="data")
        (tree,) = Path(scratch).iterdir()
        settings, more = Path(scratch) / "wheel.cfg", {"SOURCE_DATE_EPOCH": time}
        if platform == PURE:
            without_modules(tree / "pyproject.toml")
            settings.write_text("")
        else:
            settings.write_text(f"[bdist_wheel]\npy_limited_api = {OLDEST}\nplat_name = {platform}\n")
            zig = f"{sys.executable} -m ziglang cc -target {TARGETS[platform]}"
            linked = "-Wl,-undefined,dynamic_lookup" if "macos" in platform else "-Wl,--build-id=none"
            if platform == "win_amd64":
                folder = python_for_windows(Path(scratch) / "windows")
                zig, linked = f"{zig} -I{folder / 'include'}", f"-L{folder} -lpython3"
            more |= {
                "CC": zig,
                "LDSHARED": f"{zig} -shared -s {linked}",
                "CFLAGS": f"-g0 -fno-sanitize=undefined -ffile-prefix-map={scratch}=.",
            }
        call(
            sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, tree,
            DIST_EXTRA_CONFIG=str(settings), **more,
        )  # fmt: skip
    (path,) = out.glob("*.whl")
    finish(path, time)
    return path


def python_for_windows(folder: Path) -> Path:
    """Write Python's headers as Windows has them, and a library with the names of its stable interface."""
    from abi3info import DATAS, FUNCTIONS  # comes with abi3audit

    shutil.copytree(sysconfig.get_path("include"), folder / "include")
    (folder / "include" / "pyconfig.h").write_text(WINDOWS)
    exported = [symbol.name for symbol in FUNCTIONS] + [f"{symbol.name} DATA" for symbol in DATAS]
    (folder / "python3.def").write_text("\n".join(["LIBRARY python3.dll", "EXPORTS", *sorted(exported), ""]))
    call(
        sys.executable, "-m", "ziglang", "dlltool", "-m", "i386:x86-64",
        "-d", folder / "python3.def", "-l", folder / "libpython3.a",
    )  # fmt: skip
    return folder


def finish(path: Path, time: str) -> None:
    """Add the list of components to a wheel (CycloneDX, as PEP 770 has it); name modules as Windows does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [re.match(r"[\w.-]+", one)[0].lower() for one in project["dependencies"]]
    component = {"type": "library", "name": project["name"], "version": project["version"]}
    component |= {"bom-ref": "self", "purl": f"pkg:pypi/{project['name']}@{project['version']}"}
    bom = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": component | {"licenses": [{"license": {"id": project["license"]}}]}},
        "components": [
            {"type": "library", "name": name, "bom-ref": name, "purl": f"pkg:pypi/{name}"}
            for name in needed
        ],
        "dependencies": [{"ref": "self", "dependsOn": needed}],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        call(sys.executable, "-m", "wheel", "unpack", path, "--dest", scratch)
        (tree,) = Path(scratch).iterdir()
        if "win_amd64" in path.name:
            for module in list(tree.rglob("*.so")):
                module.rename(module.with_name(f"{module.name.split('.')[0]}.pyd"))
        (facts,) = tree.glob("*.dist-info")
        (facts / "sboms").mkdir()
        (facts / "sboms" / "rankhouse.cdx.json").write_text(json.dumps(bom, indent=1) + "\n")
        path.unlink()
        call(sys.executable, "-m", "wheel", "pack", tree, "--dest-dir", path.parent, SOURCE_DATE_EPOCH=time)


def modules() -> set[str]:
    """Return where the compiled modules of the package stand, without an ending."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    return {module["name"].replace(".", "/") for module in tools["ext-modules"]}


def check(path: Path, platform: str) -> None:
    """Refuse a wheel that is not what its name says."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    compiled = {name.split(".")[0] for name in names if name.endswith((".so", ".pyd"))}
    if compiled != (set() if platform == PURE else modules()):
        raise SystemExit(f"{path.name}: has the compiled modules {sorted(compiled)}, not {sorted(modules())}")
    if platform not in path.name:
        raise SystemExit(f"{path.name}: is no wheel for {platform}")
    call(sys.executable, "-m", "twine", "check", "--strict", path)
    call(sys.executable, "-m", "check_wheel_contents", path)
    if platform == PURE:
        return
    call(sys.executable, "-m", "abi3audit", "--strict", path)
    if platform == f"manylinux_2_17_{machine()}":
        check_loops(path)
    if "manylinux" in platform:
        asked = [sys.executable, "-m", "auditwheel", "show", str(path)]
        said = " ".join(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())
        if f'following platform tag: "{platform}"' not in said:
            raise SystemExit(f"{path.name}: auditwheel finds another platform: {said}")
    elif "musllinux" in platform and (more := libraries(path) - {"libc.so"}):
        # On a machine with glibc, auditwheel takes its libc.so, which is a script, for musl's.
        raise SystemExit(f"{path.name}: needs {', '.join(sorted(more))} besides musl")
    elif platform == "win_amd64" and (more := {n for n in libraries(path) if not OF_WINDOWS.fullmatch(n)}):
        raise SystemExit(f"{path.name}: needs {', '.join(sorted(more))} besides Windows and Python")


LOOPS = """
import importlib.util, sys
def opened(name):
    found = importlib.util.spec_from_file_location(name, f"{sys.argv[1]}/{name.replace('.', '/')}.abi3.so")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
assert opened("rankhouse.nn.cpu._wide").supported(), "int8 and fp32 of encoders"
assert opened("rankhouse.nn.cpu._train").choose(False), "light rankers"
if sys.argv[2] == "x86_64":
    opened("rankhouse.io._crc32")
"""
"""Fails where compiled loops of an unpacked wheel think that this processor does not run them."""


def check_loops(path: Path) -> None:
    """Refuse a wheel for this machine whose loops do not use its processor, an ARM or one with AVX2."""
    facts = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split()
    if machine() == "x86_64" and not {"avx2", "fma", "pclmulqdq"} <= set(facts):
        return
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(path) as archive:
        archive.extractall(scratch)  # noqa: S202  built above
        call(sys.executable, "-c", LOOPS, scratch, machine())


def libraries(path: Path) -> set[str]:
    """Return the shared libraries that the compiled modules of a wheel for Linux or Windows need."""
    from elftools.elf.elffile import ELFFile  # comes with auditwheel
    from pefile import PE  # comes with abi3audit

    needed = set[str]()
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".so"):
                tags = ELFFile(io.BytesIO(archive.read(name))).get_section_by_name(".dynamic").iter_tags()
                needed |= {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
            elif name.endswith(".pyd"):
                needed |= {entry.dll.decode() for entry in PE(data=archive.read(name)).DIRECTORY_ENTRY_IMPORT}
    return needed


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="a folder that does not exist yet")
    parser.add_argument("--only", nargs="+", choices=[*TARGETS, PURE], default=[*TARGETS, PURE])
    parser.add_argument("--once", action="store_true", help="do not build everything twice")
    asked = parser.parse_args()
    if asked.out.exists():
        raise SystemExit(f"{asked.out}: exists; name a folder that does not")
    time, lines = epoch(), dict[str, str]()
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "made"
        archive = source(made, time)
        call(sys.executable, "-m", "twine", "check", "--strict", archive)
        lines[archive.name] = digest(archive)
        for platform in asked.only:
            first = wheel(archive, platform, Path(scratch) / platform, time)
            check(first, platform)
            lines[first.name] = digest(first)
            if not asked.once:
                again = wheel(archive, platform, Path(scratch) / f"{platform} again", time)
                if digest(again) != lines[first.name]:
                    raise SystemExit(f"{first.name}: a second build gave other bytes")
            shutil.move(first, made / first.name)
            print(f"{first.name}: {(made / first.name).stat().st_size:,} bytes", flush=True)
        (made / "SHA256SUMS.json").write_text(json.dumps(lines, indent=1) + "\n")
        shutil.move(made, asked.out)


if __name__ == "__main__":
    main()
