# SPDX-License-Identifier: Apache-2.0
"""Bugs planted in the kernel source are caught: by a stop of the simulator or by a result that is
outside the bounds of `pfattn check`; and the same cases pass without them.

    test_plants.py PFATTN SIMULATOR PLANTED_HIP SOURCE IMAGES ARCH IMAGE COMMAND.. [-- IMAGE COMMAND..]..

SIMULATOR and PLANTED_HIP are the libraries (planted_hip.c), SOURCE is src/, IMAGES the directory of
the images that ship, COMMAND what compiles one, without its input and output. Every plant is made in
a copy of the headers. An unplanted copy must compile to the very bytes that ship: so what is planted
in is what ships.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from plants import PLANTS

ROOMS = ("common", "hip")


def commands_of(arguments):
    """{image: command} from IMAGE COMMAND.. -- IMAGE COMMAND.."""
    commands = {}
    while arguments:
        end = arguments.index("--") if "--" in arguments else len(arguments)
        commands[arguments[0]] = arguments[1:end]
        arguments = arguments[end + 1:]
    return commands


class Bench:
    def __init__(self, arguments, directory):
        self.pfattn, self.simulator, self.planted_hip = arguments[:3]
        self.source, self.images = map(Path, arguments[3:5])
        self.arch = arguments[5]
        self.commands = commands_of(arguments[6:])
        self.directory = directory

    def shipped(self, image):
        return self.images / f"{self.arch}.{image}.co"

    def compile(self, image, name, plant=None):
        """The image made from a copy of the source, with the plant in it."""
        tree = self.directory / name
        for room in ROOMS:
            shutil.copytree(self.source / room, tree / room, ignore=shutil.ignore_patterns("*.c", "*.build"))
        if plant:
            file = tree / plant.file
            file.write_text(plant.apply(file.read_text()))
        output = tree / "image.co"
        subprocess.run([*self.commands[image], "-o", output, tree / "hip/kernel.hip"], check=True,
                       capture_output=True, text=True)
        return output

    def check(self, cases, library, **variables):
        environment = dict(os.environ, PFATTN_HIP_LIBRARY=library, AMDGCN_SIM_ARCH=self.arch,
                           AMDGCN_SIM_THREADS="1", OMP_NUM_THREADS="1", **variables)
        arguments = [word for case in cases for word in ("--case", case)]
        return subprocess.run([self.pfattn, "check", "--backend", "hip", *arguments], env=environment,
                              capture_output=True, text=True, check=False)

    def is_what_ships(self, image):
        made = self.compile(image, f"unplanted.{image}").read_bytes()
        return None if made == self.shipped(image).read_bytes() else f"{image}: a copy compiles to other bytes"

    def passes_unplanted(self, case):
        result = self.check([case], self.simulator)
        return None if result.returncode == 0 else f"without a plant '{case}' fails:\n{result.stdout}{result.stderr}"

    def catches(self, plant):
        """None, or what went wrong."""
        image = self.compile(plant.image, plant.name.replace(" ", "-"), plant)
        result = self.check([plant.case], self.planted_hip, PLANTED_SHIPPED=str(self.shipped(plant.image)),
                            PLANTED_IMAGE=str(image))
        output = result.stdout + result.stderr
        if "planted_hip: image replaced" not in output:
            return f"{plant.name}: '{plant.case}' does not load {plant.image}\n{output}"
        if result.returncode != 1 or not plant.shows_in(output):
            return f"{plant.name}: exit status {result.returncode}, no message like {plant.caught}\n{output}"
        if plant.stops() != ("amdgcn-sim: kernel" in output):
            return f"{plant.name}: caught by another mechanism than it says\n{output}"
        return None


def attempt(job):
    work, subject, title = job
    try:
        return work(subject), title
    except subprocess.CalledProcessError as error:
        return f"{title}: does not compile\n{error.stderr}", title
    except ValueError as error:
        return str(error), title


def main():
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(sys.argv[1:], Path(directory))
        plants = [plant for plant in PLANTS if bench.arch in plant.archs]
        jobs = [(bench.is_what_ships, image, f"ships     {image}") for image in sorted({p.image for p in plants})]
        jobs += [(bench.passes_unplanted, case, f"passes    {case}") for case in sorted({p.case for p in plants})]
        jobs += [(bench.catches, plant, f"{'stopped' if plant.stops() else 'wrong':9} {plant.name}")
                 for plant in plants]
        faults = 0
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for fault, title in pool.map(attempt, jobs):
                faults += fault is not None
                print(title if fault is None else f"FAULT     {fault}", flush=True)
    print(f"{bench.arch}: {len(plants)} plants, {faults} faults")
    return 1 if faults or not plants else 0


if __name__ == "__main__":
    sys.exit(main())
