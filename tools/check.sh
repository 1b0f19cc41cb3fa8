#!/usr/bin/env bash
# Sets up, builds, and runs every test: GoogleTest through CTest, then lit.
#
#   tools/check.sh [CTEST OPTION...]        e.g. tools/check.sh -R passes/
#
# Tests that need a GPU are skipped, with the cause, where there is none.
# shellcheck disable=SC2154 # env.sh sets pcg_*
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/tools/build.sh"
# shellcheck source=/dev/null
source "${PCG_BUILD_DIR:-$root/build}/env.sh"

ctest="$(dirname "$pcg_cmake")/ctest"
results="$pcg_build/test-results"
rm -rf "$results"
mkdir -p "$results"

status=0
echo "[check] CTest"
"$ctest" --test-dir "$pcg_build" -j "$(nproc)" --output-on-failure \
  --no-tests=error --output-junit "$results/ctest.xml" -E '^lit$' "$@" ||
  status=1
if (($# == 0)); then
  echo "[check] lit"
  "$pcg_lit" -sv --xunit-xml-output "$results/lit.xml" "$pcg_build/lit" ||
    status=1
fi

# The totals of both, in one line.
"$pcg_python" - "$results" <<'PYTHON' || status=1
import glob, os, sys
import xml.etree.ElementTree as xml
passed = failed = skipped = 0
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.xml"))):
    for case in xml.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.get("status") == "fail":
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed > 0 or passed == 0)
PYTHON
exit "$status"
