# SPDX-License-Identifier: Apache-2.0
"""Run attention of a real model through the command and judge it: demo_report.py PFATTN WORK_DIR

Each operation runs twice: on the best backend of this machine in f16, as the tensors are stored, and
on the reference in f64. The first must be within the bound of docs/mathematics.md of the second, and
the second must agree with tests/ref/numpy_attention.py, which shares nothing with the library."""
import json
import os
import subprocess
import sys

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "ref"))
import numpy_attention as na  # noqa: E402

FIXTURES = os.path.join(ROOT, "tests", "fixtures", "minilm")
CASES = [("Gettysburg Address", "gettysburg-layer0"), ("six sentences", "sentences-layer5")]
OPERATIONS = {
    "forward": (("q", "k", "v"), ("o", "lse")),
    "jvp": (("q", "k", "v", "tq", "tk", "tv"), ("o", "lse", "to", "tlse")),
    "backward": (("q", "k", "v", "do"), ("dq", "dk", "dv")),
}
AGREEMENT = 1e-12  # of two computations in f64


def load(directory, names):
    return {name: np.load(os.path.join(directory, name + ".npy")) for name in names}


def run_command(command, operation, files, out, *options):
    """Results by name, and the command's own summary."""
    arguments = [command, "run", operation, "--out", out, "--json", *options]
    for name, path in files.items():
        arguments += ["--" + name, path]
    result = subprocess.run(arguments, stdout=subprocess.PIPE, check=False)
    if result.returncode != 0:
        sys.exit(f"'{' '.join(arguments)}' ended with exit status {result.returncode}")
    return load(out, OPERATIONS[operation][1]), json.loads(result.stdout)


def half(x):
    return x.astype(np.float16).astype(np.float32)


def naive_f16(tensors, operation):
    """Attention as f16 hardware does it at its simplest: f32 sums, and each matrix rounded to f16
    before it enters a product. Its error is the measure of what is allowed."""
    f32 = {name: x.astype(np.float32) for name, x in tensors.items()}
    q, k, v = f32["q"], f32["k"], f32["v"]
    alpha = np.float32(1 / np.sqrt(q.shape[3]))
    kept = np.broadcast_to(f32["mask"] != 0 if "mask" in f32 else True,
                           (*q.shape[:3], k.shape[2]))
    score = np.where(kept, alpha * (q @ k.swapaxes(2, 3)), -np.inf)
    top = score.max(3, keepdims=True)
    e = np.exp(score - top)
    total = e.sum(3, keepdims=True)
    p = e / total
    o = half(p) @ v
    results = {"o": o, "lse": (np.log(total) + top)[..., 0]}
    if operation == "jvp":
        dt = alpha * (f32["tq"] @ k.swapaxes(2, 3) + q @ f32["tk"].swapaxes(2, 3))
        weighted = np.where(kept, p * dt, 0)
        mu = weighted.sum(3, keepdims=True)
        results["to"] = half(weighted) @ v - mu * o + half(p) @ f32["tv"]
        results["tlse"] = mu[..., 0]
    if operation == "backward":
        do = f32["do"]
        delta = (do * o).sum(3, keepdims=True)
        ds = half(p * (do @ v.swapaxes(2, 3) - delta))
        results["dq"] = alpha * (ds @ k)
        results["dk"] = alpha * (ds.swapaxes(2, 3) @ q)
        results["dv"] = half(p).swapaxes(2, 3) @ do
    return results


def numpy_f64(tensors, operation):
    inputs = {name: x for name, x in tensors.items() if name != "do"}
    problem = na.Problem(**inputs)
    if operation == "forward":
        return na.forward(problem)
    if operation == "jvp":
        return na.jvp(problem)
    return na.backward(problem, tensors["do"].astype(np.float64))


def judge(x, exact, naive, independent):
    """(largest value, error, allowed error, distance of the references, verdict)"""
    largest = max(1.0, np.abs(exact).max())
    error = np.abs(x - exact).max()
    allowed = 2 * np.abs(naive - exact).max() + 1e-5 * largest
    norm = np.linalg.norm
    in_norm = norm(x - exact) <= 4 * norm(naive - exact) + 1e-6 * norm(exact)
    distance = np.abs(exact - independent).max() / largest
    good = bool(error <= allowed and in_norm and distance <= AGREEMENT)  # false for NaN
    return np.abs(exact).max(), error, allowed, distance, good


def main():
    command, work = sys.argv[1:3]
    row = "{:<19} {:<17} {:<9} {:<5} {:>9} {:>9} {:>9} {:>9} {:>10}  {}"
    lines, count, failures, where = [], 0, 0, ""
    for title, name in CASES:
        directory = os.path.join(FIXTURES, name)
        masked = os.path.exists(os.path.join(directory, "mask.npy"))
        for operation, (inputs, outputs) in OPERATIONS.items():
            inputs = inputs + ("mask",) * masked
            files = {which: os.path.join(directory, which + ".npy") for which in inputs}
            tensors = load(directory, inputs)
            best, summary = run_command(command, operation, files, os.path.join(work, "best"))
            exact, _ = run_command(command, operation, files, os.path.join(work, "exact"),
                                   "--backend", "ref", "--dtype", "f64")
            naive, independent = naive_f16(tensors, operation), numpy_f64(tensors, operation)
            where = f"{summary['backend']}, {summary['device']}"
            for number, output in enumerate(outputs):
                largest, error, allowed, distance, good = judge(
                    best[output], exact[output], naive[output], independent[output])
                count += 1
                failures += not good
                lines.append(row.format(
                    title if number == 0 else "",
                    "x".join(map(str, tensors["q"].shape)) if number == 0 else "",
                    operation if number == 0 else "", output, f"{largest:.3g}", f"{error:.1e}",
                    f"{allowed:.1e}", f"{distance:.0e}",
                    f"{1e3 * summary['seconds']:.3f} ms" if number == 0 else "",
                    "ok" if good else "WRONG"))
    print(f"Attention of all-MiniLM-L6-v2 on real text, f16, on {where}\n")
    print(row.format("input", "B x H x S x D", "operation", "", "largest", "error", "allowed",
                     "ref-NumPy", "time", ""))
    print("\n".join(lines))
    print("\nerror: largest difference from the reference in f64; allowed: from the naive f16\n"
          "computation, see docs/mathematics.md; ref-NumPy: reference in f64 against NumPy,\n"
          "relative. time: of the operation itself, the first call.\n")
    print(f"{count - failures} of {count} results are right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
