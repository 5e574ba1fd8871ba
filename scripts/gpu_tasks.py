# SPDX-License-Identifier: Apache-2.0
"""Many runs of pfattn at once: a check's cases in batches, spread over processes and GPUs, and what they all say."""
import json
import os
import subprocess
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

# The reference of a case takes as long as its products, on one core, several times over.
WEIGHTS = {"forward": 1, "jvp": 3, "backward": 3, "backward-jvp": 8, "duality": 12, "merge": 0.1}
ALONE = 2e9  # products of a case that has a process of its own
BATCH = 60  # cases, of those that have not
VERDICTS = ("passed", "failed", "skipped")


def cost(case: str) -> float:
    """Products that the reference forms, about."""
    knob = dict(word.split("=", 1) for word in case.split())
    b, h, d = (int(knob.get(name, size)) for name, size in (("B", 1), ("H", 1), ("D", 64)))
    m, n = (int(knob.get(name, knob.get(other, 64))) for name, other in ("MN", "NM"))
    return WEIGHTS[knob["op"]] * b * h * m * n * (d + int(knob.get("E", d)))


def batches(cases: list[str]) -> list[list[str]]:
    """Every case once: the dearest first, each alone, then the others, so mixed that batches take as long."""
    by_cost = sorted(cases, key=cost, reverse=True)
    alone = [[case] for case in by_cost if cost(case) > ALONE]
    light = by_cost[len(alone):]
    count = -(-len(light) // BATCH)
    return alone + [light[i::count] for i in range(count)]


@dataclass(frozen=True)
class Task:
    """One process: a pfattn check, and what it runs under, with its cases. It writes OUT/NAME.log and OUT/NAME.json."""

    name: str
    command: tuple[str, ...]
    cases: tuple[str, ...]
    environment: dict = field(default_factory=dict)


@dataclass
class Outcome:
    task: Task
    status: int
    tail: str


def run_task(task: Task, out: Path, device: int) -> Outcome:
    """One process a core: OpenMP would only make them wait for each other."""
    log, report = (out / f"{task.name}{suffix}" for suffix in (".log", ".json"))
    report.unlink(missing_ok=True)  # a run before this one may have left it
    command = [*task.command, "--json", str(report), "--device", str(device)]
    for case in task.cases:
        command += ["--case", case]
    with log.open("w", encoding="utf-8") as to:
        status = subprocess.call(command, stdout=to, stderr=subprocess.STDOUT,
                                 env={**os.environ, "OMP_NUM_THREADS": "1", **task.environment})
    return Outcome(task, status, "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]))


def run_tasks(tasks: list[Task], out: Path, devices: int, workers: int, in_turn: list[Task] = ()) -> list[Outcome]:
    """All tasks, in order, `workers` at a time; those `in_turn` one after the other on the first device, for each
    needs most of its memory."""
    with ThreadPoolExecutor(max(workers, 2)) as pool:
        vast = pool.submit(lambda: [run_task(task, out, 0) for task in in_turn])
        others = [pool.submit(run_task, task, out, n % devices) for n, task in enumerate(tasks)]
    return [*vast.result(), *(future.result() for future in others)]


def count(outcomes: list[Outcome], out: Path) -> tuple[dict[str, Counter], list[Outcome]]:
    """Verdicts by operation and in all, and the tasks that failed: also those that ended without a word, whose cases
    count as failed."""
    counts, faults = defaultdict(Counter), []
    for outcome in outcomes:
        report = out / f"{outcome.task.name}.json"
        found = Counter()
        try:
            backends = json.loads(report.read_text(encoding="utf-8"))["backends"]
        except (OSError, ValueError):
            backends = []
        for group in (group for backend in backends for group in backend["groups"]):
            verdicts = {v: group[v] for v in VERDICTS}
            found.update(verdicts)
            counts[group["operation"]].update(verdicts)
        lost = len(outcome.task.cases) - found.total()
        if lost:
            counts["without a verdict"]["failed"] += lost
            found["failed"] += lost
        counts["all"].update(found)
        if outcome.status or found["failed"]:
            faults.append(outcome)
    return dict(counts), faults
