"""Runs a command and kills it at one change of the file system; given its names by runpy.

FOLDER: where. ARGUMENTS: the command line. AFTER: changes count from the first whose path holds this.
KILL: at which of them; 0 for none.
"""

import os
import signal
import sys

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"}
counted = 0


def watch(event, arguments):
    """Count changes of the file system and die at the one wanted."""
    global counted  # noqa: PLW0603 - a hook has no other memory
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if event not in CHANGES and not writes:
        return
    if counted or AFTER in str(arguments[0]):  # noqa: F821 - given by runpy
        counted += 1
        if counted == KILL:  # noqa: F821
            os.kill(os.getpid(), signal.SIGKILL)


os.chdir(FOLDER)  # noqa: F821
log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.dup2(log, 1)
os.dup2(log, 2)

from rankhouse.cli.main import main  # noqa: E402 - after the log is open

if KILL:  # noqa: F821
    sys.addaudithook(watch)
sys.argv = ["rankhouse", *ARGUMENTS]  # noqa: F821
main()
