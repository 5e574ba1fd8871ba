# SPDX-License-Identifier: Apache-2.0
"""That the tables of docs/performance.md say what the run they are of has measured.

usage: test_tables.py SOURCE_ROOT
Also that bench/tables.py puts a figure back that was changed, and refuses a run that lacks a row.
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

root = Path(sys.argv[1])
page = (root / "docs/performance.md").read_text(encoding="utf-8")
run = root / re.search(r"--json (docs/performance/\S+\.json)", page)[1]


def filled(measured, text):
    """The page that bench/tables.py makes of a text, and what it says where it refuses."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, rows = Path(scratch, "page.md"), Path(scratch, "run.json")
        copy.write_text(text, encoding="utf-8")
        rows.write_text(json.dumps(measured), encoding="utf-8")
        done = subprocess.run([sys.executable, root / "bench/tables.py", rows, copy], check=False, text=True,
                              capture_output=True)
        return copy.read_text(encoding="utf-8"), done.stderr if done.returncode else ""


measured = json.loads(run.read_text(encoding="utf-8"))
again, refusal = filled(measured, page)
problems = [refusal] if refusal else []
problems += [f"docs/performance.md has, and {run.name} does not:\n    {line}"
             for line in sorted(set(page.splitlines()) - set(again.splitlines()))]
changed = re.sub(r"^(\| D128 \|) \d+", r"\1 1", page, flags=re.M)
if changed == page or filled(measured, changed)[0] != again:
    problems.append("a changed figure was not put back")
measured["rows"] = [row for row in measured["rows"] if row["what"] != "backward D64 N4096"]
if "backward D64 N4096" not in filled(measured, page)[1]:
    problems.append("a row that was not measured was not named")
for problem in problems:
    print(problem)
sys.exit(bool(problems))
