# SPDX-License-Identifier: Apache-2.0
"""What the built libraries show to the world.

usage: test_library.py SOURCE_ROOT SHARED STATIC
The shared library exports the functions of the public header and nothing else, and needs no
vendor's library; the static library defines no global name that could meet another library's.
"""
import os
import re
import subprocess
import sys

root, shared, static = sys.argv[1:]

ALLOWED = re.compile(
    r"(libc|libm|libdl|libpthread|librt|libgomp|libomp|libomp5|libgcc_s|ld-linux[\w-]*"
    r"|libasan|libubsan|libtsan|liblsan|libclang_rt\.[\w.-]+)\.so(\.\d+)*"
)


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def header(name):
    with open(os.path.join(root, "include/pfattn", name), encoding="utf-8") as file:
        return file.read()


def exported():
    text = header("pfattn.h")
    want = set(re.findall(r"^PFATTN_API[^;]*?(pfattn_\w+)\(", text, re.M))
    have = {line.split()[-1] for line in output("nm", "-D", "--defined-only", shared).splitlines()}
    # A sanitizer's own symbols begin with two underscores.
    have = {name for name in have if not name.startswith("__")}
    for name in sorted(want - have):
        yield f"{name} is declared but not exported"
    for name in sorted(have - want):
        yield f"{name} is exported but not declared in pfattn.h"


def needed():
    text = output("readelf", "-d", shared)
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text):
        if not ALLOWED.fullmatch(name):
            yield f"the shared library needs {name}"
    abi = re.search(r"define PFATTN_ABI_VERSION (\d+)", header("version.h")).group(1)
    if f"[libpfattn.so.{abi}]" not in text:
        yield f"the soname is not libpfattn.so.{abi}"


def static_names():
    for line in output("nm", "--defined-only", "--extern-only", static).splitlines():
        fields = line.split()
        if len(fields) == 3 and not re.match(r"pf_|pfattn_|__|DW\.ref\.", fields[2]):
            yield f"the static library defines {fields[2]}"


failures = [*exported(), *needed(), *static_names()]
print("\n".join(failures) or "clean")
sys.exit(1 if failures else 0)
