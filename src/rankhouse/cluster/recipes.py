"""A recipe on a cluster: passes that do not need each other run at the same time, each in its own process."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import click

from rankhouse.cluster.actors import Fault, actor_class, received, start_actor
from rankhouse.cluster.jobs import TRIES
from rankhouse.cluster.session import Capacity, ClusterOptions, first_line, full_store, ray_session
from rankhouse.cluster.worker import beacon, locked, sees
from rankhouse.core.errors import MissingInput, RankhouseError, WrongUse, warn
from rankhouse.recipes.execute import Call, State, call, conclude, of_step, standing
from rankhouse.recipes.loops import Pass
from rankhouse.recipes.plan import RecipePlan, Task, TaskInputs
from rankhouse.recipes.sources import Contents

_TURN: Final = 1.0  # seconds between two looks at whether something has become possible


def carry_out_on_cluster(
    plan: RecipePlan, out: Path, contents: Contents, say: Callable[[str], None], cluster: ClusterOptions
) -> list[State]:
    """Do every task that is not done, each as soon as what it needs is there.

    Errors are those of ``carry_out``; what ran beside a command that failed is finished first.
    """
    states = {which: standing(task, out, contents) for which, task in plan.tasks.items()}
    left = {which: state.task for which, state in states.items() if state.state == "to do"}
    if left:
        with beacon(out) as token, ray_session(cluster) as ray:
            states |= _Passes(
                ray, cluster, plan, left, place=(out, token), contents=contents, say=say
            ).carry_out()
    return [states[which] for which in plan.tasks]


class PassOutput(NamedTuple):
    """Standard output and warnings of the command of a pass."""

    text: str
    warned: tuple[str, ...]


@dataclass(frozen=True)
class HeldPass:
    """A pass in an actor; the command opens what it needs."""

    task: Task
    out: Path
    token: str
    found: ClassVar[dict[str, str]] = {}  # the pass's record says all

    def run(self, _: None) -> PassOutput:
        """Do the pass; MissingInput where the result's folder is not to be seen from here."""
        if not sees(self.out, self.token):
            raise MissingInput(
                f"{self.out}: is not to be seen from {os.uname().nodename}; a recipe on a cluster needs a "
                "folder that all its machines share"
            )
        output = io.StringIO()
        with locked(self.out / self.task.folder), contextlib.redirect_stderr(output):
            try:
                text = call(self.task, self.out)
            except click.ClickException as error:
                raise WrongUse(error.format_message()) from error
        lines = output.getvalue().splitlines()
        marks = ("warning: ", "note: ")
        return PassOutput(text, tuple(line.partition(": ")[2] for line in lines if line.startswith(marks)))


@dataclass
class _PassAtWork:
    actor: Any
    task: Task
    where: str
    started: datetime
    clock: float


class _Passes:
    def __init__(
        self,
        ray: Any,  # noqa: ANN401 - Ray's own types change
        cluster: ClusterOptions,
        plan: RecipePlan,
        left: dict[Pass, Task],
        place: tuple[Path, str],
        contents: Contents,
        say: Callable[[str], None],
    ) -> None:
        self._ray, self._plan, self._left, self._say = ray, plan, left, say
        (self._out, self._token), self._contents = place, contents
        self._most = cluster.workers or len(left)
        self._capacity = Capacity(ray, cluster, "auto", at_once=min(self._most, _width(left)))
        self._actors = actor_class(ray)
        self._running: dict[Any, _PassAtWork] = {}
        self._deaths: Counter[Pass] = Counter()
        self._numbers = {which: number for number, which in enumerate(plan.tasks, 1)}

    def carry_out(self) -> dict[Pass, State]:
        """Do all that is left; return how it stands now."""
        made: dict[Pass, State] = {}
        fault: Exception | None = None
        while self._running or (self._left and fault is None):
            if fault is None:
                self._start()
            for ref in self._ray.wait([*self._running], num_returns=1, timeout=_TURN)[0]:
                running = self._running.pop(ref)
                try:
                    state = self._end(running, ref)
                except Exception as error:  # noqa: BLE001 - raised when the others have ended
                    if fault is None and self._running:
                        self._say(f"{running.where}: failed; {len(self._running)} at work are finished first")
                    fault = fault or error
                else:
                    made |= {running.task.which: state} if state else {}
                self._ray.kill(running.actor)
        if fault is not None:
            raise fault
        return made

    def _start(self) -> None:
        """Start whatever needs nothing that is not there."""
        for which, task in [*self._left.items()]:
            if len(self._running) >= self._most:
                return
            if any(need in self._left or need in self._at_work for need in task.inputs.needs):
                continue
            del self._left[which]
            where = f"[{self._numbers[which]}/{len(self._plan.tasks)}] {task.title}"
            self._say(f"{where}: rankhouse {task.command.name}")
            opener = partial(HeldPass, replace(task, inputs=TaskInputs()), self._out, self._token)
            given = task.command.read(task.arguments).values() if task.command.takes("device") else ("cpu",)
            resources = self._capacity.resources | ({"num_gpus": 0} if "cpu" in given else {})
            actor, _ = start_actor(self._actors, opener, resources, self._capacity.cpus)
            ref = actor.run.remote(None)
            self._running[ref] = _PassAtWork(actor, task, where, datetime.now(UTC), clock=time.perf_counter())

    @property
    def _at_work(self) -> set[Pass]:
        return {running.task.which for running in self._running.values()}

    def _end(self, running: _PassAtWork, ref: Any) -> State | None:  # noqa: ANN401
        """Take what a pass gives; None if its process died and it has to be done again."""
        task = running.task
        try:
            answer = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            if (reason := full_store(error)) or isinstance(error, self._ray.exceptions.RayTaskError):
                raise RankhouseError(f"{running.where}: {reason or first_line(error)}") from error
            self._deaths[task.which] += 1
            if self._deaths[task.which] < TRIES:
                self._left = {task.which: task} | self._left
                return None
            died = RankhouseError(
                f"its process died {TRIES} times ({first_line(error)}); give each more room, with fewer at a "
                "time (--cluster-workers)"
            )
            raise of_step(self._plan, task, died) from None
        if isinstance(answer, Fault):
            raise of_step(self._plan, task, answer.error())
        said: PassOutput = received(answer)
        for text in said.warned:
            warn(f"{task.title}: {text}")
        seconds = time.perf_counter() - running.clock
        record = conclude(
            self._plan, task, self._out, self._contents, called=Call(said.text, running.started, seconds)
        )
        self._say(f"{running.where}: done in {record.seconds:.1f} s")
        self._contents.save()
        return State(task, "made", record)


def _width(tasks: dict[Pass, Task]) -> int:
    """Return how many tasks may be at work at the same time: the most on one level of who needs whom."""
    levels: dict[Pass, int] = {}
    for which, task in tasks.items():  # in order of work: needs come first
        levels[which] = 1 + max((levels[need] for need in task.inputs.needs if need in levels), default=0)
    return max(Counter(levels.values()).values(), default=1)
