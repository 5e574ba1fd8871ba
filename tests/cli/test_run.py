# SPDX-License-Identifier: Apache-2.0
"""`pfattn run` against tests/ref/numpy_attention.py: test_run.py PFATTN

Every operation in every type, layout and spelling of the options. The inputs are rounded to the type
by this file's own code. In f64 the results agree to 1e-12; in the other types within the bound of
docs/mathematics.md without its naive term, since the reference accumulates in f32 and rounds no
product."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ref"))
import numpy_attention as na  # noqa: E402

PFATTN = sys.argv[1]
OUTPUTS = {
    "forward": ("o", "lse"),
    "jvp": ("o", "lse", "to", "tlse"),
    "backward": ("o", "lse", "dq", "dk", "dv", "dbias", "dq2", "dk2"),
    "backward-jvp": ("o", "lse", "to", "tlse", "tdq", "tdk", "tdv", "tdbias", "tdq2", "tdk2"),
    "merge": ("o", "lse", "to", "tlse"),
}
SEQUENCE = {"q", "k", "v", "q2", "k2", "tq", "tk", "tv", "tq2", "tk2", "do", "tdo", "o", "to", "dq", "dk",
            "dv", "dq2", "dk2", "tdq", "tdk", "tdv", "tdq2", "tdk2", "o0", "o1", "to0", "to1"}
# Type: significand bits with the hidden one, exponent of the smallest normal number, largest number.
FORMATS = {"f16": (11, -14, 65504.0), "bf16": (8, -126, 3.3895313892515355e38),
           "f32": (24, -126, float(np.finfo("f4").max)), "e5m2": (3, -14, 57344.0)}


def rounded(x, dtype):
    """x rounded once, to nearest even, to a type, as float64."""
    if dtype == "f64":
        return x.astype("f8")
    bits, smallest, largest = FORMATS[dtype]
    x = x.astype("f8")
    finite = np.isfinite(x)
    y = np.where(finite, x, 0)
    exponent = np.maximum(np.frexp(y)[1] - 1, smallest)
    unit = np.ldexp(1.0, exponent - (bits - 1))
    y = np.rint(y / unit) * unit
    y = np.where(np.abs(y) > largest, np.copysign(np.inf, y), y)
    return np.where(finite, y, x)


def problem_inputs(rng, operation, B=2, H=4, Hk=2, M=9, N=13, D=8, E=6, bias_shape=None, mask=True,
                   piecewise=True):
    """Random arrays by option name."""
    normal = rng.standard_normal
    if operation == "merge":
        inputs = {}
        for part in "01":
            inputs["o" + part], inputs["to" + part] = normal((B, H, M, E)), normal((B, H, M, E))
            inputs["lse" + part], inputs["tlse" + part] = normal((B, H, M)), normal((B, H, M))
            empty = rng.random((B, H, M)) < 0.2
            inputs["lse" + part][empty] = -np.inf
            for name in ("o", "to", "tlse"):
                inputs[name + part][empty] = 0
        return inputs
    inputs = {"q": normal((B, H, M, D)), "k": normal((B, Hk, N, D)), "v": normal((B, Hk, N, E))}
    if piecewise:
        inputs["q2"], inputs["k2"] = normal((B, H, M, D)), normal((B, Hk, N, D))
    if bias_shape:
        inputs["bias"] = normal(bias_shape)
        inputs["bias"][rng.random(bias_shape) < 0.1] = -np.inf
    if mask:
        inputs["mask"] = rng.random((B, 1, M, N)) < 0.8
    if "jvp" in operation:
        for name in ("q", "k", "v", "bias", "q2", "k2"):
            if name in inputs:
                inputs["t" + name] = normal(inputs[name].shape)
    if "backward" in operation:
        inputs["do"], inputs["dlse"] = normal((B, H, M, E)), normal((B, H, M))
    if operation == "backward-jvp":
        inputs["tdo"] = normal((B, H, M, E))
    return inputs


def expected_results(operation, inputs, **scalars):
    if operation == "merge":
        return na.merge(**inputs)
    names = {name: x for name, x in inputs.items() if name not in ("do", "dlse", "tdo")}
    for name in ("bias", "tbias"):
        if name in names:
            x = names[name]
            names[name] = x.reshape((1,) * (4 - x.ndim) + x.shape)
    p = na.Problem(**names, **scalars)
    results = na.jvp(p) if "jvp" in operation else na.forward(p)
    if operation == "backward":
        results.update(na.backward(p, inputs["do"], inputs.get("dlse")))
    if operation == "backward-jvp":
        results.update(na.backward_jvp(p, inputs["do"], inputs.get("dlse"), inputs.get("tdo")))
    return results


class Run(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.rng = np.random.default_rng(int.from_bytes(self.id().encode(), "little") % 2**32)

    def command(self, *arguments):
        environment = dict(os.environ, OMP_WAIT_POLICY="passive")
        result = subprocess.run([PFATTN, "run", *arguments], env=environment, capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def run_files(self, operation, files, *options):
        """Write the arrays, run, and read every result back."""
        out = os.path.join(self.directory.name, "out")
        arguments = [operation, "--backend", "ref", "--out", out, *options]
        for name, array in files.items():
            path = os.path.join(self.directory.name, name + ".npy")
            np.save(path, array)
            arguments += ["--" + name, path]
        self.stdout = self.command(*arguments)
        results = {name[:-4]: np.load(os.path.join(out, name)) for name in os.listdir(out)}
        for name in os.listdir(out):
            os.unlink(os.path.join(out, name))
        return results

    def compare(self, operation, inputs, results, dtype, layout="bhsd", **scalars):
        expected = expected_results(operation, inputs, **scalars)
        wanted = {name for name in OUTPUTS[operation] if name in expected}
        self.assertEqual(set(results), wanted)
        for name in wanted:
            x, exact = results[name], expected[name]
            self.assertEqual(x.dtype, np.dtype("f8" if dtype == "f64" else "f4"), name)
            if layout == "bshd" and name in SEQUENCE:
                x = x.swapaxes(1, 2)
            if name in ("dbias", "tdbias"):
                exact = exact.reshape(inputs["bias"].shape)
            self.assertEqual(x.shape, exact.shape, name)
            self.assertTrue(np.array_equal(np.isfinite(x), np.isfinite(exact)), name)
            finite = np.isfinite(exact)
            self.assertTrue(np.array_equal(x[~finite], exact[~finite]), name)
            error = np.abs(x[finite] - exact[finite]).max(initial=0)
            largest = max(1, np.abs(exact[finite]).max(initial=0))
            self.assertLessEqual(error, (1e-12 if dtype == "f64" else 1e-5) * largest, name)

    def test_every_operation_in_every_type_and_layout(self):
        for operation in OUTPUTS:
            for dtype in ("f64", "f32", "f16", "bf16", "e5m2"):
                if dtype == "e5m2" and operation not in ("forward", "merge"):
                    continue
                for layout in ("bhsd", "bshd"):
                    with self.subTest(operation=operation, dtype=dtype, layout=layout):
                        self.check_one(operation, dtype, layout)

    def check_one(self, operation, dtype, layout):
        raw = problem_inputs(self.rng, operation, bias_shape=(1, 4, 9, 13))
        rows = {"lse0", "lse1", "tlse0", "tlse1", "dlse"}
        inputs = {}
        for name, x in raw.items():
            f32 = name in rows or name in ("bias", "tbias")
            inputs[name] = (x if name == "mask" else
                            rounded(x, dtype if not f32 or dtype == "f64" else "f32"))
        files = {name: x.swapaxes(1, 2) if layout == "bshd" and name in SEQUENCE else x
                 for name, x in raw.items()}
        options, scalars = ["--dtype", dtype, "--layout", layout], {}
        if operation != "merge":
            options += ["--causal", "--distance", "2"]
            scalars = {"causal": True, "distance": 2}
        results = self.run_files(operation, files, *options)
        self.compare(operation, inputs, results, dtype, layout, **scalars)

    def test_type_comes_from_the_file_of_q(self):
        raw = problem_inputs(self.rng, "forward", mask=False, piecewise=False)
        for numpy_type, dtype in (("f8", "f64"), ("f4", "f32"), ("f2", "f16")):
            with self.subTest(dtype=dtype):
                files = {name: x.astype(numpy_type) for name, x in raw.items()}
                inputs = {name: rounded(x, dtype) for name, x in raw.items()}
                results = self.run_files("forward", files)
                self.compare("forward", inputs, results, dtype)
        # k and v follow q.
        files = {"q": raw["q"].astype("f4"), "k": raw["k"], "v": raw["v"]}
        inputs = {name: rounded(x, "f32") for name, x in raw.items()}
        self.compare("forward", inputs, self.run_files("forward", files), "f32")

    def test_bias_type(self):
        """Own type by default, f8 as f32; --bias-dtype rounds it; with f64 it stays f64."""
        raw = problem_inputs(self.rng, "forward", bias_shape=(2, 4, 9, 13), piecewise=False)
        raw["bias"] *= 3
        qkv = {name: rounded(raw[name], "f32") for name in ("q", "k", "v")}
        qkv["mask"] = raw["mask"]
        for numpy_type, option, dtype in (("f8", None, "f32"), ("f2", None, "f16"),
                                          ("f4", "bf16", "bf16"), ("f8", "f16", "f16")):
            with self.subTest(file=numpy_type, option=option):
                files = dict(raw, bias=raw["bias"].astype(numpy_type))
                options = ["--dtype", "f32"] + (["--bias-dtype", option] if option else [])
                bias = rounded(raw["bias"].astype(numpy_type).astype("f8"), dtype)
                results = self.run_files("forward", files, *options)
                self.compare("forward", dict(qkv, bias=bias), results, "f32")
        results = self.run_files("forward", raw, "--dtype", "f64")
        self.compare("forward", raw, results, "f64")

    def test_packed_qkv(self):
        raw = self.rng.standard_normal((2, 11, 3, 4, 8))
        q, k, v = (raw[:, :, i].swapaxes(1, 2) for i in range(3))
        do = self.rng.standard_normal((2, 4, 11, 8))
        inputs = {"q": q, "k": k, "v": v, "do": do}
        for layout in (None, "bshd", "bhsd"):
            with self.subTest(layout=layout):
                files = {"qkv": raw, "do": do if layout == "bhsd" else do.swapaxes(1, 2)}
                options = ["--layout", layout] if layout else []
                results = self.run_files("backward", files, "--causal", *options)
                self.compare("backward", inputs, results, "f64", layout or "bshd", causal=True)

    def test_scalars(self):
        raw = problem_inputs(self.rng, "backward-jvp", bias_shape=(2, 1, 1, 13))
        for options, scalars in (
                (["--causal"], {"causal": True}),
                (["--causal", "--diagonal", "bottom-right"], {"causal": True}),
                (["--causal", "--diagonal", "top-left"], {"causal": True, "diagonal": 0}),
                (["--causal", "--diagonal", "-3"], {"causal": True, "diagonal": -3}),
                (["--diagonal=7"], {"diagonal": 7}),
                (["--scale", "0"], {"alpha": 0}),
                (["--scale=-0.75", "--deterministic"], {"alpha": -0.75})):
            for distance in (-2, 4):
                with self.subTest(options=options, distance=distance):
                    results = self.run_files("backward-jvp", raw, "--distance", str(distance),
                                             *options)
                    self.compare("backward-jvp", raw, results, "f64", distance=distance, **scalars)

    def test_bias_and_mask_of_fewer_dimensions(self):
        """They broadcast as in NumPy; dbias has the shape of the file."""
        for shape in ((9, 13), (4, 1, 1), (13,), (1, 1, 9, 1)):
            with self.subTest(shape=shape):
                raw = problem_inputs(self.rng, "backward", piecewise=False)
                raw["bias"] = self.rng.standard_normal(shape)
                raw["mask"] = raw["mask"][0, 0].astype("i8") * -5
                inputs = dict(raw, mask=raw["mask"])
                results = self.run_files("backward", raw)
                self.compare("backward", inputs, results, "f64")

    def test_optional_inputs_may_be_absent(self):
        raw = problem_inputs(self.rng, "backward-jvp", mask=False, piecewise=False)
        for absent in (("tq",), ("tq", "tk"), ("dlse", "tdo"), ("tq", "tk", "tv", "tdo", "dlse")):
            with self.subTest(absent=absent):
                inputs = {name: x for name, x in raw.items() if name not in absent}
                self.compare("backward-jvp", inputs, self.run_files("backward-jvp", inputs), "f64")
        raw = problem_inputs(self.rng, "merge")
        inputs = {name: x for name, x in raw.items() if not name.startswith("t")}
        self.compare("merge", inputs, self.run_files("merge", inputs), "f64")

    def test_file_formats(self):
        """Fortran order and big-endian files hold the same arrays."""
        raw = problem_inputs(self.rng, "forward", piecewise=False)
        files = {"q": np.asfortranarray(raw["q"]), "k": raw["k"].astype(">f8"),
                 "v": np.asfortranarray(raw["v"].astype(">f8")), "mask": raw["mask"].astype("u1")}
        self.compare("forward", raw, self.run_files("forward", files), "f64")

    def test_empty_problems(self):
        for shape in ({"M": 0}, {"N": 0}, {"B": 0}, {"M": 0, "N": 0}):
            with self.subTest(shape=shape):
                raw = problem_inputs(self.rng, "backward", mask=False, **shape)
                results = self.run_files("backward", raw, "--distance", "1")
                self.compare("backward", raw, results, "f64", distance=1)

    def test_summary(self):
        raw = problem_inputs(self.rng, "forward", piecewise=False)
        raw["mask"][:, :, 2] = False
        results = self.run_files("forward", raw, "--json")
        summary = json.loads(self.stdout)
        self.assertEqual((summary["operation"], summary["backend"], summary["dtype"]),
                         ("forward", "ref", "f64"))
        self.assertGreater(summary["seconds"], 0)
        by_name = {output["name"]: output for output in summary["outputs"]}
        finite = results["lse"][np.isfinite(results["lse"])]
        lse = by_name["lse"]
        self.assertEqual(lse["shape"], [2, 4, 9])
        self.assertEqual(lse["nonfinite"], 8)
        self.assertEqual((lse["min"], lse["max"]), (finite.min(), finite.max()))
        self.assertAlmostEqual(lse["mean"], finite.mean(), places=12)
        self.run_files("forward", raw)
        lines = self.stdout.splitlines()
        for output, shape in (("o ", "[2,4,9,6]"), ("lse ", "[2,4,9]")):
            self.assertTrue(any(line.startswith(output) and shape in line for line in lines))
        self.assertIn("time", self.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
