# SPDX-License-Identifier: Apache-2.0
"""`pfattn tune` on a simulated AMD GPU, and every variant that it can choose: test_tune.py PFATTN ARCH

Times mean nothing here. That the file is written, read and obeyed does, and that each variant computes
what the reference does."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PFATTN, ARCH = sys.argv[1:3]
SMALL = ["--seqlen", "32", "--batch", "1", "--heads", "1", "--rounds", "1", "--round-seconds", "0"]
# Several tiles of every variant, with ends inside a tile.
CASES = {
    "forward": ["M=300 N=170 Hk=1 H=2", "M=150 N=290 causal=1", "M=270 N=90 w=20 causal=1"],
    "backward": ["M=70 N=270 Hk=1 H=2", "M=150 N=290 causal=1 dlse=1", "M=90 N=150 w=20 det=1"],
}


class Tune(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = os.path.join(directory.name, "tuning")

    def run_command(self, *arguments, **variables):
        result = subprocess.run([PFATTN, *arguments], env=dict(os.environ, **variables), capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result

    def tune(self, *arguments):
        return self.run_command("tune", "--backend", "hip", *SMALL, *arguments, PFATTN_TUNING=self.file)

    def entries(self):
        with open(self.file, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0], "pfattn tuning 1")
        return [line for line in lines if line.startswith("gfx")]

    def test_the_file_is_read(self):
        output = self.tune("--op", "forward,jvp", "--dtype", "f16").stdout
        self.assertRegex(output, r"jvp +f16 +256 .*the only variant")
        self.assertIn("wrote " + self.file, output)
        info = json.loads(self.run_command("info", "--json", PFATTN_TUNING=self.file).stdout)
        device, = [b for b in info["backends"] if b["name"] == "hip"][0]["devices"]
        self.assertEqual(device["tuning_file"], self.file)
        self.assertEqual(device["tuning_entries"], len(self.entries()))
        self.assertGreater(len(self.entries()), 0)

    def test_other_kernels_are_kept(self):
        self.tune("--op", "forward", "--dtype", "f16", "--head-dim", "64")
        first = self.entries()
        self.tune("--op", "forward", "--dtype", "bf16", "--head-dim", "64")
        self.assertEqual(self.entries()[:len(first)], first)
        self.assertEqual(len(self.entries()), 2 * len(first))
        self.tune("--op", "forward", "--dtype", "bf16", "--head-dim", "64")
        self.assertEqual(len(self.entries()), 2 * len(first))

    def test_other_devices_are_kept(self):
        others = ("# mine\ndevice cuda 9.9.9 Some GPU\nwhatever 9.9.9 writes  # kept\n"
                  f"device hip 9.9.9 simulated {ARCH}\n{ARCH} forward f16 256 full any of another version\n")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write("pfattn tuning 1\n" + others)
        self.tune("--op", "forward", "--dtype", "f16", "--head-dim", "64")
        with open(self.file, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.startswith("pfattn tuning 1\n" + others[:others.index("device hip")]), text)
        self.assertNotIn("another version", text)
        self.assertEqual(text.count("device hip"), 1)
        self.assertEqual(os.listdir(os.path.dirname(self.file)), ["tuning"])

    def test_files_that_cannot_be_written(self):
        self.refuse("is no tuning file of this version", "data\n")
        self.refuse("is no tuning file of this version", "pfattn tuning 2\n")
        self.refuse("larger than 1 MiB", "#" * (2 << 20))
        for path, message in ((os.path.dirname(self.file), "not a regular file"),
                              (self.file + ".d/tuning", "No such file")):
            result = subprocess.run([PFATTN, "tune", "--backend", "hip", *SMALL, "--output", path],
                                    capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertIn(message, result.stderr)

    def refuse(self, message, content):
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(content)
        result = subprocess.run([PFATTN, "tune", "--backend", "hip", *SMALL, "--output", self.file],
                                capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stdout), (5, ""))
        self.assertIn(message, result.stderr)
        with open(self.file, encoding="utf-8") as file:
            self.assertEqual(file.read(), content)

    def test_the_cache_directory_is_made(self):
        home = os.path.dirname(self.file)
        environment = {"HOME": home, "XDG_CACHE_HOME": "", "PFATTN_TUNING": ""}
        self.run_command("tune", "--backend", "hip", *SMALL, "--op", "forward", "--dtype", "f16", "--head-dim",
                         "64", **environment)
        path = os.path.join(home, ".cache/pfattn/tuning")
        self.assertTrue(os.path.exists(path))
        self.assertIn(f"tuning file {path}: 2 entries in use", self.run_command("info", **environment).stdout)

    def test_nothing_to_choose(self):
        output = self.tune("--op", "jvp", "--dtype", "f32", "--head-dim", "64").stdout
        self.assertIn("nothing to choose", output)
        self.assertFalse(os.path.exists(self.file))

    def test_every_variant_is_right(self):
        output = self.tune("--dtype", "f16").stdout
        rows = re.findall(r"^(forward|backward) +f16 +(\d+) +0 +32 +(\S+)", output, re.M)
        variants = {}
        for op, dim, name in rows:
            variants.setdefault((op, dim), []).append(name)
        self.assertEqual({key: len(names) for key, names in variants.items()},
                         {("forward", "64"): 2, ("forward", "128"): 2, ("backward", "64"): 2})
        with open(self.file, encoding="utf-8") as file:
            head = [line for line in file.read().splitlines() if not line.startswith("gfx")]
        for (op, dim), names in variants.items():
            for number, name in enumerate(names[1:], 1):
                self.check(head, op, dim, name, f"{ARCH}/{op}.%s.{dim}.plain.v{number}")

    def check(self, head, op, dim, name, image):
        """Force one variant; the cases pass, and it was loaded."""
        for dtype in ("f16", "bf16"):
            lines = [f"{ARCH} {op} {dtype} {dim} {mask} any {name}" for mask in ("full", "causal")]
            with open(self.file, "w", encoding="utf-8") as file:
                file.write("\n".join(head + lines) + "\n")
            for case in CASES[op]:
                with self.subTest(image=image % dtype, case=case):
                    result = self.run_command("check", "--backend", "hip", "--case",
                                              f"op={op} dtype={dtype} D={dim} {case}",
                                              PFATTN_TUNING=self.file, PFATTN_LOG="debug")
                    self.assertIn(f"loaded kernels {image % dtype} ", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
