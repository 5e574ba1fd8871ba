# SPDX-License-Identifier: Apache-2.0
"""Each public header compiles alone, twice over, without a warning, as C99, C11 and C++17.

usage: test_headers.py INCLUDE_DIR -- CC... [-- CXX...]
The initialisers of pfattn.h are used too: they must fill every field.
"""
import os
import subprocess
import sys

arguments = sys.argv[2:]
commands = []
for argument in arguments:
    if argument == "--":
        commands.append([])
    else:
        commands[-1].append(argument)

include = sys.argv[1]
warnings = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]
c_warnings = ["-Wstrict-prototypes", "-Wc++-compat"]

INITIALISERS = """
extern pfattn_attention attention;
pfattn_attention attention = PFATTN_ATTENTION_INIT;
extern pfattn_merge_args merge;
pfattn_merge_args merge = PFATTN_MERGE_ARGS_INIT;
extern pfattn_handle_options options;
pfattn_handle_options options = PFATTN_HANDLE_OPTIONS_INIT;
extern pfattn_backend_info backend;
pfattn_backend_info backend = PFATTN_BACKEND_INFO_INIT;
extern pfattn_device_info device;
pfattn_device_info device = PFATTN_DEVICE_INFO_INIT;
extern pfattn_tensor tensor;
pfattn_tensor tensor = PFATTN_TENSOR_INIT;
"""

failures = 0
runs = 0
for header in sorted(os.listdir(os.path.join(include, "pfattn"))):
    if not header.endswith(".h"):
        continue
    source = f"#include <pfattn/{header}>\n" * 2 + "extern int unit;\nint unit = 0;\n"
    if header == "pfattn.h":
        source += INITIALISERS
    languages = [("c", "c99", 0), ("c", "c11", 0), ("c++", "c++17", 1)]
    for language, standard, which in languages:
        if which >= len(commands):
            print(f"{header}: not tried as {standard}: no C++ compiler here")
            continue
        command = commands[which] + [f"-std={standard}", f"-I{include}", "-fsyntax-only"]
        command += warnings + (c_warnings if language == "c" else [])
        run = subprocess.run(
            command + ["-x", language, "-"], input=source, capture_output=True, text=True
        )
        runs += 1
        if run.returncode != 0 or run.stderr:
            failures += 1
            print(f"{header} as {standard}:\n{run.stderr}")

print(f"{runs} compilations, {failures} failed")
sys.exit(1 if failures or runs == 0 else 0)
