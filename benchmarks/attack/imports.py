"""Slow imports, made before trials: those without rankers are forked from a process that is small."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

_SMALL = ("ir_measures", "jinja2", "matplotlib.backends.backend_svg", "rankhouse.cli.main")
_LARGE = (
    *("torch", "torch._dynamo", "rankhouse.models.bundle", "rankhouse.models.crossencoder"),
    *("rankhouse.models.biencoder", "rankhouse.training.fit", "rankhouse.training.pretrain"),
)


def prepare() -> None:
    """Import what every command needs, and keep every process to one thread."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "COLUMNS": "110", "HF_HUB_OFFLINE": "1"}
    for name in _SMALL:
        with contextlib.suppress(ModuleNotFoundError):  # charts are not installed beside other frameworks
            importlib.import_module(name)
    gc.freeze()


def prepare_rankers() -> None:
    """Import what rankers need, once."""
    if "torch" in sys.modules:
        return
    for name in _LARGE:
        importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)
    gc.freeze()


def apart(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Do some work in a forked process that has everything imported; return what it returns.

    Raises:
        RuntimeError: The work failed.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if not os.environ.get("ATTACK_LIGHT"):
                prepare_rankers()
            os.write(writing, json.dumps(work()).encode())
            code = 0
        except BaseException:  # noqa: BLE001 - said, and raised by the parent
            traceback.print_exc()
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read()
    if os.waitpid(pid, 0)[1] != 0:
        raise RuntimeError("the attack could not be prepared; see above")
    return json.loads(said)
