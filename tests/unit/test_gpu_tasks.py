# SPDX-License-Identifier: Apache-2.0
"""That the parallel check of scripts/validate_gpu loses nothing: each case is run once, on every device, and what
fails, crashes or says nothing is reported. A script stands in for pfattn.

usage: test_gpu_tasks.py SCRIPTS_DIRECTORY
"""
import json
import stat
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, sys.argv.pop(1))
sys.dont_write_bytecode = True

import gpu_tasks  # noqa: E402
from gpu_tasks import ALONE, BATCH, Task, batches, cost, count, run_tasks  # noqa: E402

# Says of each case what its name says: fails, skips, or passes; dies at once of one named "dies".
PFATTN = """#!/usr/bin/env python3
import json, os, sys
arguments = sys.argv[1:]
values = {name: [b for a, b in zip(arguments, arguments[1:]) if a == name] for name in ("--case", "--json", "--device")}
if any("dies" in case for case in values["--case"]):
    print("it died")
    os.abort()
verdicts = ["failed" if "fails" in c else "skipped" if "skips" in c else "passed" for c in values["--case"]]
group = {v: verdicts.count(v) for v in ("passed", "failed", "skipped")}
report = {"backends": [{"groups": [{"operation": "forward", **group}]}], "device": values["--device"],
          "environment": [os.environ.get("PFATTN_CUDA_TARGET"), os.environ["OMP_NUM_THREADS"]]}
with open(values["--json"][0], "w") as f:
    json.dump(report, f)
sys.exit("failed" in verdicts)
"""


class Batches(unittest.TestCase):
    def test_cost_by_hand(self):
        # 3 (jvp) x B 2 x H 3 x M 10 x N 20 x (D 8 + E 4)
        self.assertEqual(cost("op=jvp dtype=f16 B=2 H=3 M=10 N=20 D=8 E=4"), 3 * 2 * 3 * 10 * 20 * 12)
        self.assertEqual(cost("op=forward N=10 D=8"), 10 * 10 * 16)  # as many queries as keys, E as D

    def test_each_case_once_and_the_dear_alone(self):
        cases = [f"op=forward M={m} N=300" for m in range(1, 501)]
        dear = [f"op=backward H={h} M=4096 N=4096" for h in (1, 4, 2)]
        parts = batches(cases + dear)
        self.assertEqual(Counter(case for part in parts for case in part), Counter(cases + dear))
        self.assertEqual(parts[:3], [[dear[1]], [dear[2]], [dear[0]]])
        self.assertTrue(all(cost(case) > ALONE for case in dear) and all(cost(case) < ALONE for case in cases))
        self.assertTrue(all(len(part) <= BATCH for part in parts))
        costs = [sum(map(cost, part)) for part in parts[3:]]
        self.assertLess(max(costs), 1.1 * min(costs))

    def test_no_cases(self):
        self.assertEqual(batches([]), [])


class Runs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.out = Path(directory.name)
        self.pfattn = self.out / "pfattn"
        self.pfattn.write_text(PFATTN, encoding="utf-8")
        self.pfattn.chmod(self.pfattn.stat().st_mode | stat.S_IXUSR)

    def task(self, name: str, *cases: str, **environment: str) -> Task:
        return Task(name, (str(self.pfattn),), cases, environment)

    def report(self, name: str) -> dict:
        return json.loads((self.out / f"{name}.json").read_text(encoding="utf-8"))

    def test_counts_all_verdicts_and_names_what_failed(self):
        tasks = [self.task("good", "a", "b skips"), self.task("bad", "c", "d fails", "e"),
                 self.task("dead", "f", "g dies")]
        counts, faults = count(run_tasks(tasks, self.out, devices=1, workers=4), self.out)
        self.assertEqual(counts["all"], Counter(passed=3, skipped=1, failed=3))
        self.assertEqual(counts["without a verdict"], Counter(failed=2))
        self.assertEqual({fault.task.name for fault in faults}, {"bad", "dead"})
        self.assertIn("it died", next(fault.tail for fault in faults if fault.task.name == "dead"))

    def test_success_without_a_report_is_a_fault(self):
        counts, faults = count(run_tasks([Task("silent", ("true",), ("a",))], self.out, devices=1, workers=1), self.out)
        self.assertEqual(counts["all"], Counter(failed=1))
        self.assertEqual([fault.task.name for fault in faults], ["silent"])

    def test_a_report_of_an_earlier_run_does_not_count(self):
        task = self.task("again", "a")
        run_tasks([task], self.out, devices=1, workers=1)
        self.assertTrue((self.out / "again.json").exists())
        counts, faults = count(run_tasks([Task("again", ("true",), ("a",))], self.out, devices=1, workers=1), self.out)
        self.assertEqual(counts["all"], Counter(failed=1))
        self.assertEqual([fault.task.name for fault in faults], ["again"])

    def test_all_devices_but_in_turn_on_the_first(self):
        tasks = [self.task(f"t{i}", f"case {i}") for i in range(6)]
        vast = [self.task(f"v{i}", f"vast {i}", PFATTN_CUDA_TARGET="sm_80") for i in range(3)]
        outcomes = run_tasks(tasks, self.out, devices=2, workers=3, in_turn=vast)
        self.assertEqual(len(outcomes), 9)
        self.assertEqual(Counter(self.report(t.name)["device"][0] for t in tasks), Counter({"0": 3, "1": 3}))
        self.assertEqual({self.report(t.name)["device"][0] for t in vast}, {"0"})
        self.assertEqual(self.report("v0")["environment"], ["sm_80", "1"])
        self.assertEqual(self.report("t0")["environment"], [None, "1"])


if __name__ == "__main__":
    assert gpu_tasks.VERDICTS == ("passed", "failed", "skipped")
    unittest.main()
