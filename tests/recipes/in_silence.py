"""Runs ``rankhouse run`` in a forked process, for test_kills; the caller gives ARGUMENTS and LOG."""

import os
import sys
import warnings

import torch

from rankhouse.cli.main import main

os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # noqa: F821 - a global that run_path gives
for stream in (1, 2):
    os.dup2(log, stream)
sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
warnings.simplefilter("default")
sys.argv = ["rankhouse", "run", *ARGUMENTS]  # noqa: F821
main()
