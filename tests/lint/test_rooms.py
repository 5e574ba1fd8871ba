# SPDX-License-Identifier: Apache-2.0
"""The layout of the source: what may stand in which room, and what every file owes.

usage: test_rooms.py SOURCE_ROOT
Each rule is one function that yields sentences; any sentence fails the test.
"""
import os
import re
import sys

ROOT = sys.argv[1]
TREES = ["bindings", "examples", "include", "scripts", "src", "tests", "tools"]
C_LIKE = (".c", ".h", ".cu", ".cuh", ".hip", ".cpp", ".hpp")
DEVICE = (".cu", ".cuh", ".hip")
CODE = C_LIKE + (".py", ".sh")
LINE_LIMIT = 900

VENDOR_HEADER = re.compile(
    r'#\s*include\s*[<"](cuda|hip/|hip_|nv|mma\.h|sm_\d|cooperative_groups|rocm|hsa|amd_)[^>"]*'
)
VENDOR_TYPE = re.compile(
    r"\b(CU(stream|device|context|module|function|event|result|deviceptr|tensorMap|graph)\w*"
    r"|cuda[A-Z]\w*|hip[A-Z]\w*|__nv_\w+|__hip_\w+)\b"
)
ARCH_MACRO = re.compile(r"\b(__CUDA\w*|__NVCC__|__HIP\w*|__AMDGCN\w*|__AMDGPU__|__gfx\w+|__GFX\w+)\b")
FORBIDDEN_CALL = re.compile(
    r"\b(v?f?printf|puts|perror|abort|_?_?exit|_Exit|quick_exit|assert|system)\s*\("
)
INCLUDE = re.compile(r'#\s*include\s*[<"]([^>"]+)[>"]')
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')


def walk():
    for tree in TREES:
        for folder, folders, names in os.walk(os.path.join(ROOT, tree)):
            folders[:] = sorted(f for f in folders if f != "__pycache__")
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), ROOT)
    yield "meson.build"
    yield "meson_options.txt"


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


FILES = list(walk())


def sources(under, endings=C_LIKE):
    return [f for f in FILES if f.startswith(under) and f.endswith(endings)]


def code_of(path):
    """Without comments; line breaks stay."""
    return COMMENT.sub(lambda m: "\n" * m.group().count("\n"), read(path))


def find(pattern, path, strings=True):
    text = code_of(path)
    if not strings:
        text = STRING.sub('""', text)
    for match in pattern.finditer(text):
        yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}", match.group()


def licence_line():
    for path in FILES:
        script = path.startswith("scripts/") and "." not in os.path.basename(path)
        name = os.path.basename(path)
        if path.endswith(CODE) or script or name in ("meson.build", "meson_options.txt"):
            if "SPDX-License-Identifier: Apache-2.0" not in "".join(
                read(path).splitlines(True)[:3]
            ):
                yield f"{path}: lacks its SPDX line in the first three lines"


def short_files():
    for path in FILES:
        if path.endswith(CODE) and read(path).count("\n") >= LINE_LIMIT:
            yield f"{path}: has {LINE_LIMIT} lines or more"


def vendor_headers_stay_in_one_header():
    for room in ["src/cuda/", "src/hip/"]:
        holders = [
            f for f in sources(room) if not f.endswith(DEVICE) and list(find(VENDOR_HEADER, f))
        ]
        if len(holders) > 1:
            yield f"{room}: vendor headers are included by {', '.join(holders)}; one may"
    rooms = ("src/cuda/", "src/hip/")
    for path in sources("include/") + sources("src/"):
        if not path.startswith(rooms):
            for where, what in find(VENDOR_HEADER, path):
                yield f"{where}: {what} is a vendor's header"


def no_vendor_types_in_common():
    for path in sources("include/") + sources("src/common/") + sources("src/ref/"):
        for where, what in find(VENDOR_TYPE, path, strings=False):
            yield f"{where}: {what} is a vendor's type or function"


def no_arch_macros_in_kernels():
    for path in sources("src/common/kernels/"):
        for where, what in find(ARCH_MACRO, path):
            yield f"{where}: {what} names a vendor or chip"


def library_is_quiet():
    for path in sources("src/"):
        for where, what in find(FORBIDDEN_CALL, path, strings=False):
            yield f"{where}: {what}) has no place in the library"
        if path != "src/common/log.c":
            for where, what in find(re.compile(r"\b(secure_)?getenv\s*\("), path):
                yield f"{where}: the environment is read in src/common/log.c alone"


def reference_is_independent():
    for path in sources("src/ref/"):
        for where, what in find(INCLUDE, path):
            target = INCLUDE.match(what).group(1)
            beside = os.path.join(ROOT, "src", "common", "kernels", os.path.basename(target))
            if "kernels/" in target or os.path.exists(beside):
                if not os.path.exists(os.path.join(ROOT, "src/ref", target)):
                    yield f"{where}: the reference includes kernel source ({target})"


def public_functions_are_documented():
    text = read("include/pfattn/pfattn.h")
    for match in re.finditer(r"^PFATTN_API[^;]*?(pfattn_\w+)\(", text, re.M):
        if not text[: match.start()].rstrip().endswith("*/"):
            yield f"include/pfattn/pfattn.h: {match.group(1)} has no docstring"


def version_is_written_once():
    numbers = re.findall(r"define PFATTN_VERSION_[MP]\w+ (\d+)", read("include/pfattn/version.h"))
    version = re.compile(r"\b" + r"\.".join(numbers) + r"\b")
    for path in sources("src/") + sources("tools/") + ["meson.build"]:
        if version.search(COMMENT.sub("", read(path))):
            yield f"{path}: the version belongs in include/pfattn/version.h alone"


def tests_are_registered():
    for path in FILES:
        match = re.fullmatch(r"(tests/.*?)((?:test|fuzz)_(\w+)\.(?:c|cpp|py|sh|cu))", path)
        if match is None:
            continue
        folder, name, stem = match.groups()
        if not registered(folder, name, stem):
            yield f"{path}: is not registered in a meson.build of its directory or above"


def registered(folder, name, stem):
    while folder.startswith("tests"):
        build = os.path.join(folder, "meson.build")
        if build in FILES:
            text = re.sub(r"#.*", "", read(build))
            return name in text or f"'{stem}'" in text
        folder = os.path.dirname(folder.rstrip("/"))
    return False


def test_directories_are_entered():
    text = read("tests/meson.build")
    for path in FILES:
        match = re.fullmatch(r"tests/([\w-]+)/meson\.build", path)
        if match and f"subdir('{match.group(1)}')" not in text:
            yield f"{path}: tests/meson.build does not enter this directory"


RULES = [
    licence_line,
    short_files,
    vendor_headers_stay_in_one_header,
    no_vendor_types_in_common,
    no_arch_macros_in_kernels,
    library_is_quiet,
    reference_is_independent,
    public_functions_are_documented,
    version_is_written_once,
    tests_are_registered,
    test_directories_are_entered,
]

failures = [f"{rule.__name__}: {sentence}" for rule in RULES for sentence in rule()]
print("\n".join(failures) or f"{len(RULES)} rules over {len(FILES)} files")
sys.exit(1 if failures else 0)
