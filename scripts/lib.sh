# SPDX-License-Identifier: Apache-2.0
# Shared by scripts/demo and scripts/test: finding and installing what they need.
# Sourced by bash with -eu; $root is the repository.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() {
    printf '%s\n' "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

seconds_since() {
    echo $((SECONDS - $1))
}

# The first Python that has NumPy; the system's one may have it where the first in PATH does not.
python_with_numpy() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'import numpy' >/dev/null 2>&1; then
            echo "$python"
            return 0
        fi
    done
    return 1
}

# How to recognise that a Debian package is there already, on other systems too.
is_installed() {
    case $1 in
    gcc | g++ | gfortran | meson | python3) have "$1" ;;
    ninja-build) have ninja ;;
    pkg-config) have pkg-config || have pkgconf ;;
    binutils) have readelf ;;
    libc6-dev) [ -e /usr/include/stdlib.h ] ;;
    libcmocka-dev) [ -e /usr/include/cmocka.h ] ;;
    python3-numpy) python_with_numpy >/dev/null ;;
    python3-pip) python3 -m pip --version >/dev/null 2>&1 ;;
    clang-format-14) have clang-format-14 || ! have apt-get ;; # the lint test can do without
    *) have dpkg && dpkg -s "$1" >/dev/null 2>&1 ;;
    esac
}

may_be_root() {
    [ "$(id -u)" -eq 0 ] || { have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Install those of the named Debian packages that are missing, or say what to install.
bootstrap() {
    local package missing=()
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return 0
    fi
    have apt-get || die "please install, under your system's names for them: ${missing[*]}"
    may_be_root || die "please install, as root: apt-get install ${missing[*]}"
    say "Installing ${missing[*]}"
    local log
    log=$(mktemp)
    if ! { as_root apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        die "please install ${missing[*]}: apt-get could not, for the reason above"
    fi
    rm -f "$log"
}

# Set `clang` to a clang of version 17 or later, with its sanitizers, libFuzzer, OpenMP, lld and the
# AMD target; 19 is the one that Debian 12 has and that we know best.
bootstrap_clang() {
    local version chosen=
    for version in 19 20 21 18 17; do
        if have "clang-$version"; then
            chosen=$version
            break
        fi
    done
    if [ -z "$chosen" ] && have clang && ! have apt-get; then
        clang=clang
        return 0
    fi
    if [ -z "$chosen" ]; then
        chosen=19
        ! may_be_root || as_root apt-get update -qq >/dev/null 2>&1 || true
        for version in 19 20 21 18 17; do
            if apt-cache show "clang-$version" >/dev/null 2>&1; then
                chosen=$version
                break
            fi
        done
    fi
    # shellcheck disable=SC2034 # for whoever called
    clang=clang-$chosen
    if have apt-get; then
        bootstrap "clang-$chosen" "lld-$chosen" "libclang-rt-$chosen-dev" "llvm-$chosen-dev" \
            "libomp-$chosen-dev"
    fi
}

# Put nvcc in PATH: the machine's own, else NVIDIA's packages from PyPI in the user's cache.
bootstrap_nvcc() {
    local candidate
    for candidate in /usr/local/cuda/bin /opt/cuda/bin; do
        if ! have nvcc && [ -x "$candidate/nvcc" ]; then
            PATH=$PATH:$candidate
        fi
    done
    if have nvcc; then
        return 0
    fi
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/pfattn/cuda-13.0
    local found
    found=$(find "$cache" -path '*/bin/nvcc' 2>/dev/null | head -n 1 || true)
    if [ -z "$found" ]; then
        say "Installing nvcc into $cache"
        bootstrap python3-pip
        python3 -m pip install -q --disable-pip-version-check --no-warn-script-location \
            --target "$cache" 'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-runtime==13.0.*' \
            'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*' || return 1
        found=$(find "$cache" -path '*/bin/nvcc' | head -n 1)
    fi
    [ -n "$found" ] && PATH=$PATH:$(dirname "$found")
}

# Configure a build directory anew, keeping what ninja can reuse: configure DIR OPTION...
configure() {
    local directory=$1
    shift
    if [ -f "$directory/build.ninja" ]; then
        meson setup --reconfigure "$directory" "$root" "$@" >"$directory/configure.log" 2>&1 ||
            { cat "$directory/configure.log" >&2; die "meson could not configure $directory"; }
    else
        mkdir -p "$directory"
        meson setup "$directory" "$root" "$@" >"$directory.log" 2>&1 ||
            { cat "$directory.log" >&2; die "meson could not configure $directory"; }
        mv "$directory.log" "$directory/configure.log"
    fi
}
