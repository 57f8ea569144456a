"""An index and a teacher become a ranker: questions, candidates, scores, student, weight, report.

Everything is written into one folder as it is made, so that a killed adaptation resumes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import torch
from torch import Tensor, nn

from rankhouse.adaptation.mining import Mined, mine
from rankhouse.adaptation.options import ELSEWHERE, Adaptation, design_of
from rankhouse.adaptation.questions import Questions, questions, try_systems
from rankhouse.adaptation.report import AdaptResult, encode_command, system_of, weigh, write_report
from rankhouse.adaptation.student import (
    STEPS_FILE,
    Remaining,
    Timetable,
    begin_student,
    examples_of,
    go_on,
    held_out,
    ranker_of,
    settings_of,
    teach,
    timetable,
)
from rankhouse.core.arguments import changed
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import TextEncoder, fingerprint_of
from rankhouse.core.progress import say
from rankhouse.io.content_hash import content_hash
from rankhouse.io.decoding import read_own
from rankhouse.io.outputs import check_own_folder, only_writer, replacing_folder, write_json
from rankhouse.models.bundle import MANIFEST, fingerprint, read_manifest, save
from rankhouse.models.families import FAMILIES
from rankhouse.systems.checkpoints import with_default
from rankhouse.systems.rankers import ComputeOptions, open_ranker

_KNEW: Final = 0.75
"""Share of the best validation that an untaught encoder reaches where what it knows is worth keeping."""
PLAN, TRAINING, RANKER, RESULT = "plan.json", "training", "ranker", "adapted.json"


def adapt_with(job: Adaptation) -> AdaptResult:
    """Adapt a ranker to a collection; given again, a killed one resumes, and a finished one takes more steps.

    Raises WrongUse where the folder holds another adaptation, BadData where the documents ask no question
    that comes back.
    """
    began, options = time.monotonic(), job.options
    family = _family_of(options.ranker)
    if family in FAMILIES:  # a setting that is refused is refused before anything is written
        settings_of(family, job.teacher, options)
    with only_writer(job.folder):
        check_own_folder(job.folder, (PLAN,))
        if not (job.folder / PLAN).exists():
            try_systems(job)
        job.folder.mkdir(parents=True, exist_ok=True)
        plan = _check_plan(job)
        found = questions(job)
        apart, model = held_out(job, found), begin_student(job)
        settings = settings_of(model.family, found.teacher, options)
        work = Remaining(model, examples_of(found, job.index), settings, apart)
        settled = go_on(job, work, timetable(job, work, began))
        write_json(job.folder / PLAN, plan)  # with the steps or minutes that were raised
        steps, mined = _teach(job, work, found, settled)
        student = open_ranker(str(job.folder), ComputeOptions(work.settings.precision))
        some, show = apart.few(settled.weighing), job.show("weighing the student")
        weights = weigh(student, some, job.index, depth=options.depth, progress=show)
        result = AdaptResult(
            ranker=str(job.folder),
            system=str(system_of(job, weights.student)),
            steps=steps,
            questions=len(work.examples.queries),
            student_weight=weights.student,
            first_stage=options.first_stage,
            held_out=weights.values,
            test=write_report(job, student, weights.student),
            mined=mined,
            encode=encode_command(job) if isinstance(student, TextEncoder) else "",
        )
        write_json(job.folder / RESULT, msgspec.to_builtins(result))
        return result


def _family_of(ranker: str) -> str:
    """Return the family of a design, a notation or a bundle, as :func:`begin_student` reads it."""
    if not design_of(ranker) and (Path(ranker) / MANIFEST).is_file():
        return read_manifest(ranker).family
    return with_default(ranker).partition("(")[0].strip()


def _check_plan(job: Adaptation) -> dict[str, Any]:
    """Refuse a folder of another adaptation; write down, and return, what this one is."""
    text = [f"{query.id}\t{query.text}" for query in (*job.people, *job.tested)]
    plan: dict[str, Any] = {"index": job.index.fingerprint, "teacher": fingerprint_of(job.teacher)}
    plan |= {"queries": text, "options": msgspec.to_builtins(job.options)}
    path = job.folder / PLAN
    if not path.exists():
        write_json(path, plan)
        return plan
    before = read_own(path, dict[str, Any], ELSEWHERE)
    now = msgspec.json.decode(msgspec.json.encode(plan))
    differences = [name for name in now if name != "options" and before.get(name) != now[name]]
    options = before.get("options")  # one by one, with their value then
    before = options if isinstance(options, dict) else {}
    if _is_raised(job):
        before |= {name: now["options"][name] for name in ("steps", "minutes")}
    differences += changed(before, now["options"])
    if differences:
        raise WrongUse(
            f"{job.folder}: holds another adaptation; not as it was: {', '.join(differences)}; give the same "
            "to go on with it, or adapt into another folder"
        )
    return plan


def _is_raised(job: Adaptation) -> bool:
    """Return whether a finished adaptation is given as many steps or minutes as it had, or more."""
    if not (job.folder / RESULT).exists():
        return False
    settled, options = read_own(job.folder / STEPS_FILE, Timetable, ELSEWHERE), job.options
    if options.steps:
        return options.steps >= settled.total
    return 0 < settled.minutes <= options.minutes


def _teach(job: Adaptation, work: Remaining, found: Questions, settled: Timetable) -> tuple[int, list[Mined]]:
    """Teach the student in one part, or in several with mining between them; keep the last part's best.

    Parts that were added are trainings of their own, each begun with the best of the one before.

    Returns the steps taken, and what was mined.
    """
    # What an encoder has to tell apart, once it searches all documents, is more than what has the same words.
    among = found.candidates if settled.untaught else None
    validation = work.apart.few(settled.validation).validation(job.index, among, own=settled.own)
    network, known = cast(nn.Module, work.model), 0.0
    untaught = {name: own.clone() for name, own in network.state_dict().items()} if settled.untaught else {}
    parts = min(job.options.mine + 1, settled.steps)
    if parts <= job.options.mine:
        say(f"the {settled.steps:,} steps that fit leave room for {parts - 1:,} choices by the student")
    examples, mined, folder, taken = work.examples, list[Mined](), job.folder / TRAINING, 0
    whole = settled.steps
    shares = [whole * (part + 1) // parts - whole * part // parts for part in range(parts)]
    for part, steps in enumerate([*shares, *settled.added]):
        if part:
            folder = job.folder / f"{TRAINING}-{part + 1}"
        if 0 < part < parts:
            seconds = settled.steps * settled.step
            run, counts = mine(job, ranker_of(work), found, part=part, seconds=seconds)
            mined.append(counts)
            examples = examples_of(found._replace(candidates=run), job.index)
        settings = work.settings.but(steps=max(1, steps))
        told = job.show("teaching")
        outcome = teach(work.model, examples, settings, folder=folder, validation=validation, progress=told)
        taken, known = taken + outcome.steps, known if part else outcome.untaught
    ranker = job.folder / RANKER
    if untaught and known >= _KNEW * outcome.best:
        _blend(network, untaught, settled.untaught)
        if not ranker.exists() or read_manifest(ranker).fingerprint != fingerprint(work.model):
            save(work.model, ranker, read_manifest(folder / RANKER).use)
        return taken, mined
    if not ranker.exists() or content_hash(ranker) != content_hash(folder / RANKER):
        with replacing_folder(ranker, lambda _: ()) as temporary:
            shutil.copytree(folder / RANKER, temporary)
    return taken, mined


def _blend(network: nn.Module, untaught: Mapping[str, Tensor], share: float) -> None:
    """Move the weights back to those before the training, by this share of the way.

    After Wortsman et al., "Robust fine-tuning of zero-shot models" (2022): what was known is not lost to what
    documents ask, which are not the questions of people.
    """
    network.load_state_dict(  # not in place: two names may stand for one tensor
        {
            name: torch.lerp(tensor, untaught[name], share) if tensor.is_floating_point() else tensor
            for name, tensor in network.state_dict().items()
        }
    )
