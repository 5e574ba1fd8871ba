# SPDX-License-Identifier: Apache-2.0
"""Print the GPU to build for: "cuda:sm_90a", "hip:gfx942", or "none:" and why."""
import ctypes
import glob
import os


def find_nvidia():
    """The target of the first CUDA device, or (None, why)."""
    try:
        driver = ctypes.CDLL(os.environ.get("PFATTN_CUDA_LIBRARY") or "libcuda.so.1")
    except OSError:
        return None, "no NVIDIA driver (libcuda.so.1)"
    count, device, major, minor = (ctypes.c_int() for _ in range(4))
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or not count:
        return None, "an NVIDIA driver without a usable device"
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # compute capability
    driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    capability = (major.value, minor.value)
    if capability == (9, 0):
        return "sm_90a", None
    if capability >= (8, 0):
        return "sm_80", None
    return None, "an NVIDIA GPU of compute capability {}.{}, below 8.0".format(*capability)


def opens(library):
    try:
        ctypes.CDLL(library)
        return True
    except OSError:
        return False


def find_amd():
    """The target of the first AMD GPU that the kernel's compute driver lists, or (None, why)."""
    override = os.environ.get("PFATTN_HIP_LIBRARY")
    names = [override] if override else [f"libamdhip64.so{n}" for n in (".7", ".6", ".5", "")]
    if not any(map(opens, names)):
        return None, "no AMD driver (libamdhip64.so)"
    others = []
    for path in sorted(glob.glob("/sys/class/kfd/kfd/topology/nodes/*/properties")):
        with open(path) as file:
            properties = dict(line.split(None, 1) for line in file if " " in line)
        version = int(properties.get("gfx_target_version", "0"))
        if version == 0:  # a CPU
            continue
        name = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        if name in ("gfx90a", "gfx942", "gfx950"):
            return name, None
        others.append(name)
    return None, "an AMD driver but " + (" and ".join(others) or "no GPU")


def main():
    reasons = []
    for vendor, find in (("cuda", find_nvidia), ("hip", find_amd)):
        target, why = find()
        if target:
            print(f"{vendor}:{target}")
            return
        reasons.append(why)
    print("none:" + ", ".join(reasons))


if __name__ == "__main__":
    main()
