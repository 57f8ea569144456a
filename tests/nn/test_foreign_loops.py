"""The loops of light rankers and of int8 on processors that are not here, by QEMU's emulation of them."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from rankhouse.nn import cpu, machine

pytestmark = [
    pytest.mark.outside,
    pytest.mark.skipif(machine.TRAIN_SET not in {"AVX2", "AVX-512"}, reason="no x86 loops to compare with"),
]
SOURCES = Path(cpu.__file__).parent
CHOOSE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("rankhouse.nn.cpu._train", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.choose(True) or "none")
"""


def needs(*programs):
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"no {', '.join(missing)}")


def results(loops, compiler, folder, *options):
    """Compile the loops into a program of their own, and give the bytes that it writes, emulated or not."""
    program = folder / compiler
    headers = [f"-I{SOURCES}", f"-I{sysconfig.get_paths()['include']}", "-DPy_LIMITED_API=0x030B0000"]
    alone = ["-static", "-Wl,--unresolved-symbols=ignore-all"]  # the functions for Python are not called
    source = Path(__file__).with_name(f"{loops}_loops_check.c")
    how = ["-O3", *headers, *alone, *options]
    subprocess.run([compiler, *how, source, "-lm", "-o", program], check=True)

    def run(*emulator, given=""):
        return subprocess.run([*emulator, program, given], check=True, capture_output=True).stdout

    return run


@needs("gcc", "aarch64-linux-gnu-gcc", "qemu-aarch64")
def test_every_loop_of_the_light_rankers_gives_the_same_on_arm(tmp_path):
    here = np.frombuffer(results("train", "gcc", tmp_path)(), "<f4")
    arm = np.frombuffer(results("train", "aarch64-linux-gnu-gcc", tmp_path)("qemu-aarch64"), "<f4")
    assert len(here) == len(arm) > 100_000
    assert np.isfinite(here).all()
    assert here.std() > 0.3
    np.testing.assert_allclose(arm, here, rtol=3e-6, atol=3e-6)


@needs("gcc", "aarch64-linux-gnu-gcc", "qemu-aarch64")
def test_every_loop_of_int8_gives_the_same_bits_on_arm(tmp_path):
    """Cortex-A57 has no dot products of bytes, Neoverse N1 has."""
    here = results("wide", "gcc", tmp_path, "-ffp-contract=off")()
    arm = results("wide", "aarch64-linux-gnu-gcc", tmp_path, "-ffp-contract=off")
    assert len(here) > 400_000
    assert np.isfinite(np.frombuffer(here[: 70 * 48 * 4], "<f4")).all()
    for processor, given in (("cortex-a57", ""), ("neoverse-n1", ""), ("neoverse-n1", "dots")):
        assert arm("qemu-aarch64", "-cpu", processor, given=given) == here, processor


@needs("qemu-x86_64")
@pytest.mark.parametrize(("processor", "chosen"), [("Nehalem", "none"), ("Haswell", "AVX2")])
def test_an_older_processor_gets_loops_that_it_runs(processor, chosen):
    (extension,) = SOURCES.glob("_train*.so")
    python = str(Path(sys.executable).resolve())
    told = subprocess.run(
        ["qemu-x86_64", "-cpu", processor, python, "-I", "-S", "-c", CHOOSE, extension],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout.strip() == chosen, told.stderr
