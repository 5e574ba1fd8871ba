# SPDX-License-Identifier: Apache-2.0
"""Exit codes, messages and help of every subcommand: test_messages.py PFATTN

Needs no NumPy: .npy files are written byte by byte."""
import csv
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

PFATTN = sys.argv[1]
DONE, FAILED, USAGE, UNSUPPORTED, UNAVAILABLE, FILE = range(6)


def npy(shape, descr="<f4", data=None, header=None, magic=b"\x93NUMPY\x01\x00"):
    count = 1
    for size in shape:
        count *= size
    text = header or f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    text = text.encode() + b" " * (-(len(text) + 11) % 64) + b"\n"
    body = data if data is not None else bytes(count * int(descr[2:]))
    return magic + struct.pack("<H", len(text)) + text + body


class Command(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.out = os.path.join(self.directory, "out")

    def file(self, name, content):
        path = os.path.join(self.directory, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def run_command(self, *arguments, **variables):
        environment = dict(os.environ, OMP_WAIT_POLICY="passive", **variables)
        return subprocess.run([PFATTN, *arguments], env=environment, capture_output=True, text=True,
                              check=False)

    def expect(self, code, message, *arguments, **variables):
        """The command ends with this code, and stderr has the words of the message."""
        with self.subTest(arguments=arguments):
            result = self.run_command(*arguments, **variables)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            for word in message.split(" ... "):
                self.assertIn(word, result.stderr)
            return result

    def sequence(self, shape=(1, 2, 4, 8), **options):
        return self.file("x.npy", npy(shape, **options))

    def qkv(self):
        path = self.sequence()
        return ["--q", path, "--k", path, "--v", path]


class Help(Command):
    def test_help_of_the_command_and_of_each_subcommand(self):
        result = self.run_command("--help")
        self.assertEqual(result.returncode, DONE)
        for word in ("info", "run", "check", "bench", "tune", "Exit status"):
            self.assertIn(word, result.stdout)
        for command, words in (("info", ["--json"]), ("run", ["--qkv", "--diagonal", "--out"]),
                               ("check", ["--full", "--case"]), ("bench", ["--preset", "triton"]),
                               ("tune", ["--head-dim", "--output"])):
            result = self.run_command(command, "--help")
            self.assertEqual((result.returncode, result.stderr), (DONE, ""))
            for word in ["Usage: pfattn " + command, *words]:
                self.assertIn(word, result.stdout)

    def test_help_lines_fit_a_terminal(self):
        for command in ("info", "run", "check", "bench", "tune"):
            for line in self.run_command(command, "--help").stdout.splitlines():
                self.assertLessEqual(len(line), 110, line)

    def test_version(self):
        self.assertRegex(self.run_command("--version").stdout, r"^pfattn \d+\.\d+\.\d+\n$")


class Usage(Command):
    def test_unknown_words(self):
        self.expect(USAGE, "Usage: pfattn")
        self.expect(USAGE, "unknown command 'walk' ... info, run, check, bench, tune", "walk")
        for command in ("info", "run", "check", "bench", "tune"):
            self.expect(USAGE, "unknown option '--nonsense' ... --help", command, "--nonsense")
            self.expect(USAGE, "unknown option '-x'", command, "-x")
        self.expect(USAGE, "unexpected argument 'more'", "info", "more")
        self.expect(USAGE, "unexpected argument 'more'", "run", "forward", "more")

    def test_missing_values(self):
        self.expect(USAGE, "--q needs a value", "run", "forward", "--q")
        self.expect(USAGE, "--seed needs a value", "check", "--seed")
        self.expect(USAGE, "--op needs a value", "bench", "--op")
        self.expect(USAGE, "--causal takes no value ... 'yes'", "run", "forward", "--causal=yes")

    def test_bad_numbers(self):
        for value in ("abc", "", "1x", "nan", "inf", "1e999"):
            self.expect(USAGE, f"--scale: '{value}'", "run", "forward", "--scale", value)
        for value in ("0/2", "3/2", "1", "1/", "1/2x", "x/2"):
            self.expect(USAGE, f"--part: '{value}'", "check", "--part", value)
        for value in ("1.5", "x", "99999999999999999999"):
            self.expect(USAGE, f"--distance: '{value}'", "run", "forward", "--distance", value)
            self.expect(USAGE, f"--seed: '{value}'", "check", "--seed", value)
        self.expect(USAGE, "--device: -1", "check", "--backend", "ref", "--device", "-1")

    def test_run(self):
        self.expect(USAGE, "run needs an operation", "run")
        self.expect(USAGE, "unknown operation 'sideways'", "run", "sideways")
        self.expect(USAGE, "forward needs --q", "run", "forward")
        self.expect(USAGE, "forward needs --v", "run", "forward", "--q", "a", "--k", "b")
        self.expect(USAGE, "backward needs --do", "run", "backward", *self.qkv())
        self.expect(USAGE, "merge needs --o0", "run", "merge")
        self.expect(USAGE, "--do is no input of forward", "run", "forward", *self.qkv(), "--do", "a")
        self.expect(USAGE, "--tq is no input of backward", "run", "backward", *self.qkv(), "--do", "a",
                    "--tq", "a")
        self.expect(USAGE, "--q is no input of merge", "run", "merge", *self.qkv())
        self.expect(USAGE, "--qkv replaces", "run", "forward", "--qkv", "a", "--q", "b")
        self.expect(USAGE, "--layout: 'sbhd'", "run", "forward", *self.qkv(), "--layout", "sbhd")
        self.expect(USAGE, "--dtype: 'f8'", "run", "forward", *self.qkv(), "--dtype", "f8")
        self.expect(USAGE, "--bias-dtype: 'f64'", "run", "forward", *self.qkv(), "--bias-dtype",
                    "f64")
        self.expect(USAGE, "--diagonal: 'middle'", "run", "forward", *self.qkv(), "--diagonal",
                    "middle")
        self.expect(USAGE, "--distance is needed", "run", "forward", *self.qkv(), "--q2", "a",
                    "--k2", "b")
        self.expect(USAGE, "--distance has a meaning only", "run", "forward", *self.qkv(),
                    "--distance", "1")
        self.expect(USAGE, "--backend: 'gpu'", "run", "forward", *self.qkv(), "--backend", "gpu")

    def test_shapes_that_do_not_fit(self):
        good = self.sequence()
        other = self.file("y.npy", npy((1, 2, 4, 9)))
        flat = self.file("z.npy", npy((8, 8)))
        five = self.file("w.npy", npy((1, 4, 2, 2, 8)))
        base = ["run", "forward", "--backend", "ref", "--out", self.out]
        self.expect(USAGE, "k: ... 9", *base, "--q", good, "--k", other, "--v", good)
        self.expect(USAGE, "--q: the array has 2 dimensions", *base, "--q", flat, "--k", good, "--v",
                    good)
        self.expect(USAGE, "--qkv: the array must be [B,S,3,H,D]", *base, "--qkv", five)
        self.expect(USAGE, "mask:", *base, *self.qkv(), "--mask",
                    self.file("m.npy", npy((3, 4), "|b1")))
        self.assertFalse(os.path.exists(self.out))

    def test_check(self):
        self.expect(USAGE, "exclude each other", "check", "--quick", "--full")
        self.expect(USAGE, "exclude each other", "check", "--simulator", "--full")
        self.expect(USAGE, "--op: 'sideways'", "check", "--op", "sideways")
        self.expect(USAGE, "--case: 'M=x'", "check", "--backend", "ref", "--case", "M=x")
        self.expect(USAGE, "--case: 'what' ... maskdims=", "check", "--backend", "ref", "--case",
                    "what")
        self.expect(USAGE, "--op and --part leave no case", "check", "--backend", "ref", "--case",
                    "op=merge", "--op", "jvp")

    def test_bench(self):
        self.expect(USAGE, "--op: 'sideways'", "bench", "--backend", "ref", "--op", "sideways")
        self.expect(USAGE, "--dtype: 'u8'", "bench", "--backend", "ref", "--dtype", "u8")
        self.expect(USAGE, "--head-dim: '0'", "bench", "--backend", "ref", "--head-dim", "64,0")
        self.expect(USAGE, "empty item", "bench", "--backend", "ref", "--seqlen", "64,,128")
        self.expect(USAGE, "--causal: '2'", "bench", "--backend", "ref", "--causal", "2")
        self.expect(USAGE, "--preset: 'mine'", "bench", "--backend", "ref", "--preset", "mine")
        self.expect(USAGE, "--rounds: 0", "bench", "--rounds", "0")
        self.expect(USAGE, "Hk must divide H", "bench", "--backend", "ref", "--heads", "3",
                    "--kv-heads", "2")

    def test_tune(self):
        self.expect(USAGE, "--op: 'merge'", "tune", "--op", "merge")
        self.expect(USAGE, "--dtype: 'f64'", "tune", "--dtype", "f64")
        self.expect(USAGE, "--head-dim: '96'", "tune", "--head-dim", "64,96")
        self.expect(USAGE, "--seqlen: '0'", "tune", "--seqlen", "512,0")
        self.expect(USAGE, "--seqlen: 512 is given twice", "tune", "--seqlen", "512,64,512")
        self.expect(USAGE, "--rounds: 65", "tune", "--rounds", "65")
        self.expect(USAGE, "--batch and --heads", "tune", "--heads", "0")
        self.expect(USAGE, "--backend: 'metal'", "tune", "--backend", "metal")
        self.expect(USAGE, "ref has nothing to tune", "tune", "--backend", "ref")
        self.expect(USAGE, "PFATTN_TUNING: ... --output", "tune", PFATTN_TUNING="none")


class Backends(Command):
    def test_info(self):
        text = self.run_command("info")
        self.assertEqual(text.returncode, DONE)
        info = json.loads(self.run_command("info", "--json").stdout)
        names = [backend["name"] for backend in info["backends"]]
        self.assertEqual(names, ["ref", "cuda", "hip"])
        for backend in info["backends"]:
            self.assertIn(backend["name"] + ":", text.stdout)
            self.assertTrue(backend["detail"])
            self.assertEqual(len(backend["devices"]), backend["device_count"])
        ref = info["backends"][0]
        self.assertTrue(ref["compiled_in"])
        self.assertEqual(ref["device_count"], 1)
        self.assertGreater(ref["devices"][0]["memory_bytes"], 1 << 20)

    def test_missing_backends_exit_4_and_are_named(self):
        """With no driver to be found, whether the backend was compiled in or not."""
        nowhere = {"PFATTN_CUDA_LIBRARY": "/nonexistent/libcuda.so",
                   "PFATTN_HIP_LIBRARY": "/nonexistent/libamdhip64.so"}
        for backend in ("cuda", "hip"):
            for arguments in (["check"], ["bench"], ["tune", "--output", self.out], ["run", "forward", *self.qkv(), "--out", self.out]):
                self.expect(UNAVAILABLE, backend + ":", *arguments, "--backend", backend, **nowhere)
            # One that is there does not hide one that is not.
            self.expect(UNAVAILABLE, backend + ":", "check", "--backend", "ref", "--backend",
                        backend, "--op", "merge", **nowhere)
            self.expect(UNAVAILABLE, backend + ":", "check", "--op", "merge",
                        PFATTN_BACKEND=backend, **nowhere)
        self.expect(UNAVAILABLE, "no GPU can be used here", "tune", "--output", self.out, **nowhere)
        self.expect(UNAVAILABLE, "device: is 7", "check", "--backend", "ref", "--device", "7")
        self.assertFalse(os.path.exists(self.out))
        info = self.run_command("info", **nowhere)
        self.assertEqual(info.returncode, DONE)

    def test_environment_chooses_for_auto(self):
        result = self.expect(DONE, "", "check", "--op", "merge", PFATTN_BACKEND="ref")
        self.assertIn("ref: ", result.stdout)

    def test_backward_of_e5m2_is_a_bad_argument(self):
        self.expect(USAGE, "e5m2", "run", "backward", "--backend", "ref", *self.qkv(), "--do",
                    self.sequence(), "--dtype", "e5m2", "--out", self.out)
        self.assertFalse(os.path.exists(self.out))


class Files(Command):
    def test_bad_files_exit_5_and_write_nothing(self):
        good = npy((1, 2, 4, 8))
        huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 4611686018427387904, 8), }"
        negative = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, -4, 8), }"
        objects = "{'descr': '|O', 'fortran_order': False, 'shape': (1, 2, 4, 8), }"
        faults = {
            "empty": b"",
            "magic": b"\x94NUMPY" + good[6:],
            "text": b"1, 2, 3\n" * 40,
            "version": good[:6] + b"\x09\x00" + good[8:],
            "short header": good[:30],
            "long header": good[:8] + b"\xff\xff" + good[10:],
            "truncated": good[:-1],
            "objects": npy((1, 2, 4, 8), header=objects, data=b"x" * 64),
            "huge": npy((1, 2, 4, 8), header=huge, data=b"x" * 64),
            "negative": npy((1, 2, 4, 8), header=negative, data=b"x" * 64),
            "complex": npy((1, 2, 4, 8), "<c8"),
            "text array": npy((1, 2, 4, 8), "<U1", data=b"x" * 256),
            "not a dict": npy((1, 2, 4, 8), header="[1, 2, 3]"),
            "integers": npy((1, 2, 4, 8), "<i8"),
            "booleans": npy((1, 2, 4, 8), "|b1"),
        }
        path = self.file("good.npy", good)
        for name, content in faults.items():
            bad = self.file("bad.npy", content)
            for option in ("q", "v", "do", "bias"):
                files = {"q": path, "k": path, "v": path, "do": path, option: bad}
                arguments = [x for key, value in files.items() for x in ("--" + key, value)]
                self.expect(FILE, f"--{option}: ... bad.npy", "run", "backward", "--backend", "ref",
                            "--out", self.out, *arguments)
                self.assertFalse(os.path.exists(self.out), name)

    def test_mask_must_not_be_floating(self):
        self.expect(FILE, "--mask: ... mask must be b1, u1 or i8", "run", "forward", *self.qkv(),
                    "--mask", self.file("m.npy", npy((4, 4))))

    def test_missing_and_unwritable_files(self):
        self.expect(FILE, "--k: ... nowhere.npy", "run", "forward", "--q", self.sequence(), "--k",
                    "nowhere.npy", "--v", self.sequence())
        self.expect(FILE, "--q: ", "run", "forward", "--q", self.directory, "--k", "x", "--v", "x")
        plain = self.file("plain", b"")
        self.expect(FILE, "--out: ... plain", "run", "forward", "--backend", "ref", *self.qkv(),
                    "--out", os.path.join(plain, "below"))
        missing = os.path.join(self.directory, "no", "file")
        self.expect(FILE, "--json: ... no/file", "check", "--backend", "ref", "--op", "merge",
                    "--json", missing)
        self.expect(FILE, "--junit: ... no/file", "check", "--backend", "ref", "--op", "merge",
                    "--junit", missing)
        small = ["bench", "--backend", "ref", "--seqlen", "16", "--rounds", "1", "--round-seconds", "0"]
        self.expect(FILE, "--csv: ... no/file", *small, "--csv", missing)

    def test_out_makes_directories(self):
        deep = os.path.join(self.out, "a", "b")
        self.expect(DONE, "", "run", "forward", "--backend", "ref", *self.qkv(), "--out", deep)
        self.assertEqual(sorted(os.listdir(deep)), ["lse.npy", "o.npy"])


class Bench(Command):
    def bench(self, *arguments):
        paths = [os.path.join(self.directory, name) for name in ("b.csv", "b.json")]
        result = self.expect(DONE, "", "bench", "--backend", "ref", "--rounds", "3",
                             "--round-seconds", "0", "--csv", paths[0], "--json", paths[1],
                             *arguments)
        with open(paths[0], encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        with open(paths[1], encoding="utf-8") as file:
            self.assertEqual(len(json.load(file)["rows"]), len(rows))
        return result, rows

    def test_rows_are_every_combination(self):
        result, rows = self.bench("--op", "forward,jvp,backward,backward-jvp", "--dtype", "f32,bf16",
                                  "--head-dim", "8,16", "--seqlen", "16", "--causal", "both")
        self.assertEqual(len(rows), 4 * 2 * 2 * 2)
        self.assertIn("TFLOP/s", result.stdout)
        # FLOPs by hand: B 1, H 8, M = N = 16, D = E.
        factors = {"forward": 1, "jvp": 3, "backward": 2.5, "backward-jvp": 7.5}
        for row in rows:
            dim = int(row["dim_qk"])
            flops = factors[row["op"]] * 2 * 8 * 16 * 16 * 2 * dim / (1 + int(row["causal"]))
            self.assertAlmostEqual(float(row["tflops"]) * float(row["seconds"]) * 1e12 / flops, 1,
                                   places=4)
            self.assertLessEqual(float(row["least_seconds"]), float(row["seconds"]))
            self.assertLessEqual(float(row["seconds"]), float(row["most_seconds"]))

    def test_features_and_merge(self):
        _, rows = self.bench("--op", "forward,backward,merge", "--seqlen", "32", "--head-dim", "8",
                             "--heads", "4", "--kv-heads", "2", "--batch", "3", "--bias", "f16",
                             "--distance", "5", "--causal", "1")
        self.assertEqual([row["op"] for row in rows], ["forward", "backward", "merge"])
        self.assertEqual({(row["batch"], row["heads"], row["kv_heads"]) for row in rows},
                         {("3", "4", "2")})
        self.assertEqual(rows[0]["distance"], "5")
        self.assertEqual(rows[0]["bias"], "f16")

    def test_presets(self):
        """Small sizes replace those of the preset; the rest of it stays."""
        for preset, batch, heads in (("triton", "4", "32"), ("flashattention", "1024", "256"),
                                     ("piecewise", "2048", "256")):
            with self.subTest(preset=preset):
                small = ["--preset", preset, "--seqlen", "16", "--head-dim", "8", "--op", "forward",
                         "--causal", "0"]
                # 16 positions of 16384 tokens are many batches: leave most of them out.
                fewer = [] if preset == "triton" else ["--batch", "2"]
                _, rows = self.bench(*small, *fewer)
                self.assertEqual((rows[0]["dtype"], rows[0]["heads"]), ("f16", heads))
                self.assertEqual(rows[0]["batch"], batch if not fewer else "2")
                self.assertEqual(rows[0]["distance"], "8" if preset == "piecewise" else "")

    def test_decode_preset(self):
        """Forward of 1, 4 and 16 queries; --queries replaces them."""
        small = ["--preset", "decode", "--head-dim", "8", "--heads", "2"]
        _, rows = self.bench(*small, "--seqlen", "20")
        self.assertEqual([(row["op"], row["queries"], row["keys"], row["causal"]) for row in rows],
                         [("forward", m, "20", "0") for m in ("1", "4", "16")])
        _, rows = self.bench(*small, "--queries", "3,30", "--seqlen", "20,40")
        self.assertEqual([(row["queries"], row["keys"]) for row in rows],
                         [("3", "20"), ("3", "40"), ("30", "20"), ("30", "40")])

    def test_plot_script_reads_both_formats_alike(self):
        """One sweep for each operation, with the same points from the CSV and from the JSON."""
        scripts = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
        spec = importlib.util.spec_from_file_location("plot", os.path.join(scripts, "plot_bench.py"))
        plot = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plot)
        self.bench("--op", "forward,jvp", "--seqlen", "16,32", "--head-dim", "8", "--distance", "3")
        titles = {"forward, f32, D 8, not causal, piecewise", "jvp, f32, D 8, not causal, piecewise"}
        tables = []
        for name in ("b.csv", "b.json"):
            sweeps = plot.collect([os.path.join(self.directory, name)])
            tables.append({plot.title_of(sweep): [row for rows in lines.values() for row in rows]
                           for sweep, lines in sweeps.items()})
            self.assertEqual(set(tables[-1]), titles)
        for title in titles:
            pair = [table[title] for table in tables]
            for rows in pair:
                self.assertEqual([row["keys"] for row in rows], [16, 32])
            for one, other in zip(*pair):
                self.assertAlmostEqual(one["tflops"] / other["tflops"], 1, places=4)

    def test_unsupported_rows_alone_exit_3(self):
        self.expect(UNSUPPORTED, "", "bench", "--backend", "ref", "--op", "backward", "--dtype",
                    "e5m2", "--seqlen", "16")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
