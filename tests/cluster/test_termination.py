"""SIGTERM while Ray is at work in the driver: whatever Ray makes of it, the program ends with 143."""

import subprocess
import sys

import pytest

pytest.importorskip("ray")
pytestmark = [pytest.mark.kill, pytest.mark.outside]

DRIVER = """
import os, signal, sys, time
from rankhouse.cli import main
from rankhouse.cluster.session import LOCAL, ClusterOptions, ray_session

def terminate():
    os.kill(os.getpid(), signal.SIGTERM)

def work(**_):
    with ray_session(ClusterOptions(LOCAL, 1)) as ray:
        assert signal.getsignal(signal.SIGTERM) is before()

        @ray.remote
        def kill_the_driver(pid):
            os.kill(pid, signal.SIGTERM)
            time.sleep(60)

        task = kill_the_driver.remote(os.getpid())
        if sys.argv[1] == "get":
            ray.get(task)
        while True:
            ray.wait([task], timeout=1)

def before(found=[]):
    found.append(signal.getsignal(signal.SIGTERM))
    return found[0]

def start(**_):
    from ray._private import node
    begin = node.Node.start_head_processes
    node.Node.start_head_processes = lambda self: (begin(self), terminate())
    work()

def call(**_):
    before()
    start() if sys.argv[1] == "start" else work()

main.cli.main = call
main.main()
"""


@pytest.mark.parametrize("moment", ["start", "get", "wait"])
def test_a_driver_that_is_terminated_says_so(moment):
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER, moment], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ended.returncode, ended.stderr) == (143, "terminated\n")
