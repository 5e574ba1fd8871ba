# SPDX-License-Identifier: Apache-2.0
"""Install into an empty place, then build and run programs against what is there.

usage: test_install.py BUILD_DIR CONSUMER SANITIZERS -- CC... [-- CXX...]
Each compiler builds the consumer through pkg-config twice: with the shared library, and with the
static one after the shared one has been removed.
"""
import glob
import os
import subprocess
import sys
import tempfile

build, consumer, sanitizers = sys.argv[1:4]
commands = []
for argument in sys.argv[4:]:
    if argument == "--":
        commands.append([])
    else:
        commands[-1].append(argument)


def run(command, **kwargs):
    result = subprocess.run(command, capture_output=True, text=True, **kwargs)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def find(root, name):
    found = glob.glob(os.path.join(root, "**", name), recursive=True)
    assert found, f"{name} was not installed"
    return found[0]


def pkg_config(root, *arguments):
    environment = dict(
        os.environ,
        PKG_CONFIG_PATH=os.path.dirname(find(root, "pfattn.pc")),
        PKG_CONFIG_SYSROOT_DIR=root,
    )
    return run(["pkg-config", *arguments, "pfattn"], env=environment).split()


def build_and_run(root, command, language, static):
    program = os.path.join(root, "consumer")
    flags = [f"-fsanitize={sanitizers}"] if sanitizers != "none" else []
    libraries = pkg_config(root, "--libs", *(["--static"] if static else []))
    cflags = ["-Wall", "-Wextra", "-Werror", *pkg_config(root, "--cflags")]
    run([*command, *flags, *cflags, "-x", language, "-c", consumer, "-o", program + ".o"])
    run([*command, *flags, program + ".o", "-o", program, *libraries, "-lm"])
    path = os.path.dirname(find(root, "libpfattn.a"))
    print(run([program], env=dict(os.environ, LD_LIBRARY_PATH=path)), end="")
    needs_shared = "libpfattn.so" in run(["readelf", "-d", program])
    assert needs_shared != static, f"static={static}, but needs_shared={needs_shared}"


with tempfile.TemporaryDirectory() as root:
    run(["meson", "install", "-C", build, "--no-rebuild", "--destdir", root])
    for name in ["pfattn/pfattn.h", "pfattn/version.h", "libpfattn.so", "libpfattn.a"]:
        find(root, name)
    version = pkg_config(root, "--modversion")[0]
    for static in [False, True]:
        if static:
            for library in glob.glob(os.path.join(root, "**", "libpfattn.so*"), recursive=True):
                os.remove(library)
        for command, language in zip(commands, ["c", "c++"]):
            build_and_run(root, command, language, static)
    print(f"pfattn {version}: {2 * len(commands)} programs")
