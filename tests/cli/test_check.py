# SPDX-License-Identifier: Apache-2.0
"""`pfattn check` passes what is right and finds what is wrong: test_check.py PFATTN PFATTN_WRONG

PFATTN_WRONG is the same command over a reference with a fault, which PFATTN_TEST_FAULT names."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PFATTN, WRONG = sys.argv[1:3]

FORWARD = "op=forward dtype=f32 B=2 H=2 M=20 N=30 D=16"
BACKWARD = "op=backward dtype=f16 B=1 H=2 M=20 N=30 D=16"

# fault -> (a case that must expose it, what the message must say)
FAULTS = {
    "one-element": (FORWARD, "largest error"),
    "nan": (FORWARD, "NaN or infinite"),
    "scale": (BACKWARD, "dq"),
    "zero": (BACKWARD, "dq"),
    "guard-after": (FORWARD, "memory around or between"),
    "guard-before": (BACKWARD + " layout=bshd", "memory around or between"),
    "input": (FORWARD, "memory of this input was changed"),
    "flaky": (FORWARD + " dtype=f16 repeat=1", "differs in bits"),
    "log2": (FORWARD, "lse"),
    "diagonal": (FORWARD + " causal=1", "o:"),
    "causal": (FORWARD + " causal=1", "o:"),
    "distance": (FORWARD + " w=3", "o:"),
    "alpha": (FORWARD, "o:"),
    "mask": (FORWARD + " mask=padding", "o:"),
    "tangent": ("op=jvp dtype=f32 M=20 N=30 D=16", "to"),
    "dlse": (BACKWARD, "dq"),
    "status": (FORWARD, "planted: the launch failed"),
    "unsupported": (FORWARD, "planted: this problem is not supported"),
    "unwritten": (FORWARD, "NaN or infinite"),
}
MERGE_FAULTS = ("one-element", "scale", "guard-after", "input", "unwritten")
DUALITY = "op=duality dtype=f32 M=20 N=30 D=16"


def run(command, *arguments, fault=None):
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    environment.pop("PFATTN_TEST_FAULT", None)
    if fault:
        environment["PFATTN_TEST_FAULT"] = fault
    return subprocess.run([command, "check", "--backend", "ref", *arguments], env=environment,
                          capture_output=True, text=True, check=False)


class Check(unittest.TestCase):
    def test_quick_passes(self):
        result = run(PFATTN)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        last = result.stdout.splitlines()[-1]
        cases, passed, failed, skipped = map(int, re.findall(r"(\d+) (?:cases|passed|failed|skipped)",
                                                             last))
        self.assertEqual((passed, failed, skipped), (cases, 0, 0))
        self.assertGreater(cases, 50)

    def test_wrong_command_without_fault_passes(self):
        result = run(WRONG, "--case", FORWARD)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_planted_faults(self):
        faults = [(fault, *FAULTS[fault]) for fault in FAULTS]
        faults += [(fault, "op=merge dtype=f16 M=20 D=16", "") for fault in MERGE_FAULTS]
        faults += [("one-element", DUALITY, ""), ("alpha", DUALITY, "")]
        for fault, case, message in faults:
            with self.subTest(fault=fault, case=case):
                self.assertEqual(run(PFATTN, "--case", case).returncode, 0)
                result = run(WRONG, "--case", case, fault=fault)
                self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
                self.assertIn("FAILED", result.stdout)
                self.assertIn(message, result.stdout)

    def test_repro_line_reproduces(self):
        result = run(WRONG, "--op", "forward", "--seed", "7", fault="alpha")
        self.assertEqual(result.returncode, 1)
        repro = re.findall(r"^  pfattn check --backend ref --seed (\d+) --case '(.*)'$",
                           result.stdout, re.MULTILINE)
        messages = re.findall(r"^FAILED (.*)$", result.stdout, re.MULTILINE)
        self.assertEqual(len(repro), len(messages))
        self.assertTrue(repro)
        for (seed, case), message in list(zip(repro, messages))[:3]:
            again = run(WRONG, "--seed", seed, "--case", case, fault="alpha")
            self.assertEqual(again.returncode, 1)
            self.assertIn("FAILED " + message, again.stdout)
            self.assertEqual(run(PFATTN, "--seed", seed, "--case", case).returncode, 0)

    def test_reports(self):
        with tempfile.TemporaryDirectory() as directory:
            json_path = os.path.join(directory, "r.json")
            junit_path = os.path.join(directory, "r.xml")
            result = run(WRONG, "--case", FORWARD, "--case", "op=forward dtype=f32 M=3 alpha=0",
                         "--json", json_path, "--junit", junit_path, fault="alpha")
            self.assertEqual(result.returncode, 1)
            with open(json_path, encoding="utf-8") as file:
                report = json.load(file)["backends"][0]
            self.assertEqual((report["backend"], report["passed"], report["failed"]), ("ref", 1, 1))
            self.assertIn("--case", report["failures"][0]["repro"])
            suite = xml.etree.ElementTree.parse(junit_path).getroot().find("testsuite")
            self.assertEqual((suite.get("tests"), suite.get("failures")), ("2", "1"))
            self.assertEqual(len(suite.findall("testcase/failure")), 1)

    def test_refusals_of_run_and_bench_exit_3(self):
        """Where the backend refuses the problem, the one exits with its sentence, the other tells the
        row and goes on."""
        with tempfile.TemporaryDirectory() as directory:
            path, out = os.path.join(directory, "x.npy"), os.path.join(directory, "out")
            header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 2, 4)}".ljust(117)
            with open(path, "wb") as file:
                file.write(b"\x93NUMPY\x01\x00\x76\x00" + header.encode() + b"\n" + bytes(32))
            environment = dict(os.environ, PFATTN_TEST_FAULT="unsupported")
            for arguments in (["run", "forward", "--q", path, "--k", path, "--v", path, "--out", out],
                              ["bench", "--seqlen", "16"]):
                result = subprocess.run([WRONG, *arguments, "--backend", "ref"], env=environment,
                                        capture_output=True, text=True, check=False)
                self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
                self.assertIn("planted: this problem is not supported",
                              result.stdout + result.stderr)
            self.assertFalse(os.path.exists(out))

    def test_several_backends_in_turn(self):
        result = run(PFATTN, "--backend", "ref", "--op", "merge")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(len(re.findall("^ref: .* cases", result.stdout, re.MULTILINE)), 2)

    def test_list_prints_cases_that_can_be_given_back(self):
        cases = run(PFATTN, "--list", "--op", "merge").stdout.splitlines()
        self.assertGreater(len(cases), 5)
        arguments = [word for case in cases for word in ("--case", case)]
        result = run(PFATTN, *arguments)
        self.assertEqual(result.returncode, 0)
        self.assertIn(f"ref: {len(cases)} cases, {len(cases)} passed", result.stdout)

    def test_parts_are_the_whole(self):
        def listed(*arguments):
            return run(PFATTN, "--list", "--op", "merge,duality", *arguments).stdout.splitlines()
        parts = [case for i in "123" for case in listed("--part", i + "/3")]
        self.assertEqual(sorted(parts), sorted(listed()))

    def test_op_filter(self):
        result = run(PFATTN, "--op", "jvp,merge")
        self.assertEqual(result.returncode, 0)
        self.assertIn("jvp", result.stdout)
        self.assertNotIn("backward", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
