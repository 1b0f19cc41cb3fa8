#!/usr/bin/env bash
# Sets up and builds everything into build/ (or PCG_BUILD_DIR).
#
#   tools/build.sh [TARGET...]
#
#   PCG_JOBS  compilations at once (one per core, and per 2 GB of memory)
# shellcheck disable=SC2154 # env.sh sets pcg_*
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/tools/setup.sh"
# shellcheck source=/dev/null
source "${PCG_BUILD_DIR:-$root/build}/env.sh"

memory_gb="$(awk '/MemTotal/ { print int($2 / 1024 / 1024) }' /proc/meminfo)"
cores="$(nproc)"
jobs="${PCG_JOBS:-$((memory_gb / 2 < cores ? memory_gb / 2 : cores))}"
((jobs > 0)) || jobs=1

if [[ ! -f "$pcg_build/CMakeCache.txt" || ! -f "$pcg_build/build.ninja" ]]; then
  echo "[build] configuring in $pcg_build"
  "$pcg_cmake" -S "$root" -B "$pcg_build" -G Ninja >"$pcg_build/configure.log" 2>&1 || {
    cat "$pcg_build/configure.log" >&2
    echo "[build] error: CMake failed; its output is above." >&2
    exit 1
  }
fi
echo "[build] building with $jobs jobs"
"$pcg_cmake" --build "$pcg_build" -j "$jobs" ${1:+--target "$@"}
