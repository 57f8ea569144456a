"""The queue of shards: whatever dies, every unit is done once, and what kills its workers is found alone."""

import random
import socket
import threading
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.cluster import session as sessions
from rankhouse.cluster.jobs import TRIES, Pool, ShardQueue, _PoolWorker
from rankhouse.cluster.session import Capacity, ClusterOptions, read_address
from rankhouse.core.errors import OutputFailed, RankhouseError, WrongUse
from rankhouse.jobs.shards import Shard, gaps


@pytest.mark.filterwarnings("ignore:the job continues without one worker")
def test_results_that_neither_memory_nor_disk_of_ray_can_hold_are_a_full_disk():
    exceptions = pytest.importorskip("ray.exceptions")
    trace = "\x1b[36mray::RankhouseWorker.run()\x1b[39m (pid=1)\n  File ..."
    queue, faults = ShardQueue([Shard(0, 4, 4)], 1), list[Exception]()

    def get(task):
        raise task

    ray = pytest.importorskip("ray")
    pool = Pool(ray, SimpleNamespace(cpus=1, workers=lambda: 1), SimpleNamespace(shards=[]), print)
    pool._ray = SimpleNamespace(exceptions=exceptions, get=get, kill=lambda actor: None)
    for cause in (exceptions.OutOfDiskError("Local disk is full\nmore"), ValueError("odd\nmore")):
        fault = exceptions.RayTaskError("run()", trace, cause).as_instanceof_cause()
        worker = _PoolWorker(None, fault, is_ready=True, shard=queue.take())
        pool._workers.append(worker)
        try:
            pool._settle(worker, queue)
        except RankhouseError as error:
            faults.append(error)
    assert [str(error) for error in faults] == ["a worker failed: odd"]
    assert "Ray's object store on " in pool._full[0].message
    assert "and the disk below it are full" in pool._full[0].message
    pool._workers.clear()
    with pytest.raises(OutputFailed, match="then give the same command again"):
        pool._start(queue)


@given(total=st.integers(1, 300), most=st.integers(1, 40), data=st.data())
def test_every_unit_is_done_once_and_the_poisoned_are_named(total, most, data):
    poison = data.draw(st.sets(st.integers(0, total - 1), max_size=4))
    chance = random.Random(data.draw(st.integers(0, 9)))
    queue, done = ShardQueue([Shard(0, total, total)], most), []
    deaths, bad_luck, unlucky = 0, 5, Counter()
    while len(queue):
        one = queue.take()
        assert queue.at_work == {one}
        if poison.intersection(range(one.start, one.stop)):
            queue.died(one, "killed")
            deaths += 1
        elif bad_luck and unlucky[one] < TRIES - 1 and chance.random() < 0.1:  # it dies of something else
            bad_luck -= 1
            unlucky[one] += 1
            queue.died(one, "killed")
        else:
            done += range(one.start, one.stop)
            queue.done(one)
    named = {gone.unit for gone in queue.poisoned}
    assert named == poison
    assert sorted(done) == [unit for unit in range(total) if unit not in poison]
    steps = max(1, most.bit_length())
    assert deaths <= len(poison) * (2 * TRIES + 2 * steps)


def test_a_unit_alone_is_given_three_tries():
    queue = ShardQueue([Shard(0, 1, 1)], 10)
    for left in (2, 1, 0):
        queue.died(queue.take(), "killed")
        assert len(queue) == (1 if left else 0)
    assert queue.poisoned == [(0, "killed")]


def test_a_shard_given_back_has_lost_no_try():
    queue = ShardQueue([Shard(0, 1, 1)], 10)
    for _ in range(9):
        queue.give_back(queue.take())
    assert queue.waiting == 1
    assert not queue.poisoned


@given(st.sets(st.integers(0, 60), min_size=0, max_size=12))
def test_gaps_are_what_is_left(edges):
    points = sorted({0, 60, *edges})
    stretches = [Shard(a, b, 60) for a, b in pairwise(points)]
    done, left = stretches[::2], stretches[1::2]
    assert gaps(random.Random(1).sample(done, len(done)), 60) == left


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ray", "local"),
        ("ray://head", "ray://head:10001"),
        ("ray://10.0.0.1:7000", "ray://10.0.0.1:7000"),
        ("head.example:6379", "head.example:6379"),
        ("[::1]:6379", "[::1]:6379"),
    ],
)
def test_addresses(text, address):
    assert read_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "auto", "Ray", "dask://x:1", "head", "head:0", "head:99999", "a b:1", "ray:"]
)
def test_what_is_no_address(text):
    with pytest.raises(WrongUse, match="names no cluster; write  ray "):
        read_address(text)


@pytest.mark.parametrize("scheme", ["", "ray://"])
@pytest.mark.parametrize(
    ("word", "reason"), [(b"", "nobody answers there"), (b"HTTP/1.1 400 Bad", "but not Ray")]
)
def test_who_listens_but_is_no_ray_is_given_up_soon(monkeypatch, scheme, word, reason):
    pytest.importorskip("ray")
    monkeypatch.setattr(sessions, "_FIRST_WORD", 60.0 if word else 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def answer():
            held.append(server.accept()[0])
            held[0].sendall(word)

        thread = threading.Thread(target=answer)
        thread.start()
        options = ClusterOptions(f"{scheme}127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(RankhouseError, match=reason), sessions.ray_session(options):
            pass
        thread.join()
        held[0].close()


def test_workers_get_smaller_when_the_large_machines_are_gone():
    nodes = [{"Alive": True, "Resources": {"CPU": cpus}} for cpus in (2.0, 8.0)]
    ray = SimpleNamespace(nodes=lambda: nodes)
    capacity, asked = (Capacity(ray, ClusterOptions("local", cpus=cpus)) for cpus in (0, 3))
    assert (capacity.workers(), capacity.cpus) == (2, 4)
    assert (asked.workers(), asked.cpus) == (2, 3)
    nodes[1]["Alive"] = False
    assert (capacity.workers(), capacity.cpus) == (1, 2)
    assert (asked.workers(), asked.cpus) == (1, 3)  # one will wait until there is such a machine again
