#!/usr/bin/env bash
# Sets up, builds, and does the main job on real input: partitions the
# TorchScript file of a voice detector and of a gated MLP, shows what became
# segments, and compares original and partitioned file call by call; on a GPU,
# with times.
#
#   tools/demo.sh
# shellcheck disable=SC2154 # env.sh sets pcg_*
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=tools/versions.env
source "$root/tools/versions.env"
"$root/tools/build.sh" pcg-opt pcg
# shellcheck source=/dev/null
source "${PCG_BUILD_DIR:-$root/build}/env.sh"

work="$pcg_build/demo"
mkdir -p "$work"

# The wheel of silero-vad, of which only the model is used.
silero="$pcg_cache/silero-vad-$SILERO_VAD_VERSION"
if [[ ! -f "$silero/silero_vad.jit" ]]; then
  echo "[demo] downloading silero-vad $SILERO_VAD_VERSION (8 MB) to $silero"
  mkdir -p "$silero"
  "$pcg_python" -m pip download --quiet --no-deps --no-input \
    --disable-pip-version-check --only-binary :all: \
    -d "$silero" "silero-vad==$SILERO_VAD_VERSION" || {
    echo "[demo] error: pip could not download silero-vad" \
      "$SILERO_VAD_VERSION; it needs to reach a package index." >&2
    exit 1
  }
  "$pcg_python" - "$silero" <<'PYTHON'
import glob, os, sys, zipfile
folder = sys.argv[1]
wheel, = glob.glob(os.path.join(folder, "*.whl"))
with zipfile.ZipFile(wheel) as archive:
    data = archive.read("silero_vad/data/silero_vad.jit")
with open(os.path.join(folder, "new"), "wb") as file:
    file.write(data)
os.replace(os.path.join(folder, "new"), os.path.join(folder, "silero_vad.jit"))
PYTHON
fi
cp "$silero/silero_vad.jit" "$work/silero_vad.pt"
"$pcg_python" -W ignore "$root/test/models/gated_mlp.py" "$work/gated_mlp.pt"

status=0
for model in silero_vad gated_mlp; do
  name="${model%_vad}"
  echo
  echo "[demo] $model: pcg-opt --partition --report"
  "$pcg_build/bin/pcg-opt" --partition --report "$work/$model.pt" \
    -o "$work/${model}_pcg.pt"
  echo
  echo "[demo] $model: original and partitioned file, side by side"
  "$pcg_python" "$root/tools/demo_$name.py" --original "$work/$model.pt" \
    --partitioned "$work/${model}_pcg.pt" \
    --library "$pcg_build/lib/libpcg.so" || status=1
done
echo
if ((status == 0)); then
  echo "[demo] done: both models agree"
else
  echo "[demo] FAILED: see above" >&2
fi
exit "$status"
