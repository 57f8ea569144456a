"""Real raylets on this machine, ended whatever happens; workers that die when told to. Read by runpy."""

import contextlib
import json
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

SYSTEM = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 5,
}
SMALLEST = 75 << 20
"""Bytes of the smallest object store that Ray starts."""


def free_port():
    """Find a port outside Ray's own range for workers."""
    while True:
        port = random.randint(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


def serve():
    """Hold the cluster in a process of its own; a line asks, a line answers; ends with its standard input."""
    warnings.simplefilter("ignore")
    os.environ["RAY_TMPDIR"] = sys.argv[1]  # Ray notes the address in "ray" below it, and does not make that
    Path(sys.argv[1], "ray").mkdir(exist_ok=True)
    from ray.cluster_utils import Cluster

    port, held = free_port(), []
    arguments = {"num_cpus": 1, "gcs_server_port": free_port(), "ray_client_server_port": port}
    arguments |= {"temp_dir": sys.argv[1], "_system_config": SYSTEM, "include_dashboard": False}
    second = {"num_cpus": 1}
    if len(sys.argv) > 2:
        spilling = {"type": "filesystem", "params": {"directory_path": sys.argv[2]}}
        config = SYSTEM | {"object_spilling_config": json.dumps(spilling)}
        arguments |= {"num_cpus": 3, "object_store_memory": SMALLEST, "_system_config": config}
        second = {"num_cpus": 2, "object_store_memory": SMALLEST}
    cluster = Cluster(initialize_head=True, head_node_args=arguments, shutdown_at_exit=True)
    try:
        cluster.add_node(**second)
        while True:
            nodes = [cluster.head_node, *cluster.worker_nodes]
            raylets = [one.process.pid for node in nodes for one in node.all_processes.get("raylet", [])]
            print(json.dumps([cluster.address, port, raylets]), flush=True)
            word, _, more = sys.stdin.readline().strip().partition(" ")
            if word == "kill":
                node = cluster.worker_nodes.pop()
                node.kill_all_processes(check_alive=False, allow_graceful=False)
                cluster.add_node(num_cpus=1)
            elif word == "versions":
                call_itself(cluster, more)
            elif word == "fill":
                fill(cluster.address, held)
            elif word == "empty":
                held.clear()
            else:
                break
    finally:
        cluster.shutdown()
        sys.stdout.flush()
        os._exit(0)  # Ray's own threads do not survive the end of Python


def fill(address, held):
    """Hold objects until the object store of the first node takes no more."""
    import numpy as np
    import ray

    if not ray.is_initialized():
        ray.init(address, log_to_driver=False)
    for size in (60 << 20, 1 << 20, 1 << 17):
        with contextlib.suppress(ray.exceptions.OutOfDiskError):
            while True:
                held.append(ray.put(np.ones(size, np.uint8)))


def call_itself(cluster, version):
    """Let a cluster say that it runs another version of Ray; "" for its own."""
    import ray
    from ray._common.usage import usage_constants
    from ray._private import ray_constants

    said = {"ray_version": version or ray.__version__, "python_version": platform.python_version()}
    key, space = usage_constants.CLUSTER_METADATA_KEY, ray_constants.KV_NAMESPACE_CLUSTER
    ray._raylet.GcsClient(address=cluster.address).internal_kv_put(
        key, json.dumps(said).encode(), True, space
    )


class World:
    """A cluster of two nodes, one processor each; the head is never killed.

    A ``tight`` one has three and two, the smallest object stores, and a disk of 1 MB to spill to.
    """

    def __init__(self, tight=False):
        self.temp = Path(tempfile.mkdtemp(prefix="rh-ray.", dir="/tmp"))
        shutil.copy(Path(__file__).with_name("sick_worker.py"), self.temp / "sitecustomize.py")
        self.sick_file = self.temp / "sick"
        self.sick()
        quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        self.environment = os.environ | quiet | {"OMP_NUM_THREADS": "1"}
        path = [str(self.temp), *filter(None, [os.environ.get("PYTHONPATH")])]
        sickly = {"RANKHOUSE_SICK": str(self.sick_file), "PYTHONPATH": os.pathsep.join(path)}
        self.nodes_environment = self.environment | sickly
        words, pipe = [sys.executable, __file__, str(self.temp)], subprocess.PIPE
        if tight:
            (spill := self.temp / "spill").mkdir()
            mounted = f'mount -t tmpfs -o size=1m none {spill} && exec "$@"'
            words = ["unshare", "--mount", "sh", "-c", mounted, "sh", *words, str(spill)]
        with (self.temp / "host.log").open("w") as log:
            self._host = subprocess.Popen(
                words, stdin=pipe, stdout=pipe, stderr=log, env=self.nodes_environment, text=True
            )
        self._read()

    def _read(self):
        for line in self._host.stdout:
            if line.startswith("["):
                self.address, self.client_port, self.raylets = json.loads(line)
                return
        log = (self.temp / "host.log").read_text()
        self.stop()
        raise RuntimeError(log[-2000:])

    def sick(self, seconds=0.0, *units, version="", blind=False, spared=""):
        """Let every chunk take so many seconds more, and let whatever works on one of these units die.

        A version is what rankhouse calls itself there; "none" is not installed. Blind workers do not see the
        driver's folder. Workers with this folder for temporary files are spared the seconds.
        """
        told = {"seconds": seconds, "units": units, "version": version, "blind": blind, "spared": str(spared)}
        fresh = self.sick_file.with_suffix(".new")  # a worker may be reading
        fresh.write_text(json.dumps(told))
        fresh.replace(self.sick_file)

    @property
    def opened(self):
        """How often a worker opened a job."""
        path = self.temp / "opened"
        return len(path.read_text().split()) if path.exists() else 0

    def workers(self, name="RankhouseWorker"):
        """Return the processes of this cluster's workers that have a job, or a pass of a recipe."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in self.raylets and (folder / "cmdline").read_bytes().startswith(
                    f"ray::{name}".encode()
                ):
                    found.append(int(folder.name))
        return found

    def _ask(self, line):
        self._host.stdin.write(line + "\n")
        self._host.stdin.flush()
        self._read()

    def kill(self, what, name="RankhouseWorker"):
        """Kill some worker, or the second node with all its processes, in whose place a new one comes.

        Returns whether there was anything to kill.
        """
        if what == "node":
            self._ask("kill")
            return True
        if not (workers := self.workers(name)):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(random.choice(workers), signal.SIGKILL)
        return True

    @contextlib.contextmanager
    def full(self):
        """Keep the first node's object store full while the block runs."""
        self._ask("fill")
        yield
        self._ask("empty")

    @contextlib.contextmanager
    def of_version(self, ray):
        """Let the cluster call itself another version of Ray while the block runs."""
        self._ask(f"versions {ray}")
        yield
        self._ask("versions")

    def command(self, *arguments, at="", **environment):
        """Start the program on this cluster, or at another address; what it says is in log.txt."""
        words = [sys.executable, "-m", "rankhouse.cli.main", *map(str, arguments)]
        words += ["--cluster", at or self.address]
        with Path("log.txt").open("w") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, env=self.environment | environment)

    def stop(self):
        """End every process of the cluster."""
        with contextlib.suppress(OSError):
            self._host.stdin.close()
        try:
            self._host.wait(300)
        except subprocess.TimeoutExpired:
            self._host.kill()
        self._host.stdout.close()
        shutil.rmtree(self.temp, ignore_errors=True)


def parts_of(out):
    """Count the finished parts beside an output."""
    return len(list(Path(f"{out}.parts").glob("*/part.json")))


def wait_for_parts(out, count, process, limit=300):
    """Wait until so many parts are finished, or the command has ended; whether it is still running."""
    until = time.monotonic() + limit
    while parts_of(out) < count and process.poll() is None:
        assert time.monotonic() < until, f"{out}: {parts_of(out)} of {count} parts after {limit} s"
        time.sleep(0.01)
    return process.poll() is None


if __name__ == "__main__":
    serve()
