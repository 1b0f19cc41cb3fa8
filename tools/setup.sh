#!/usr/bin/env bash
# Gets what pcg needs to build, test and run its demo. Idempotent; what it
# downloads is kept outside the clone.
#
#   tools/setup.sh
#
# Needs python3 (3.10 to 3.14, with venv) and g++ 12 or newer. CMake, Ninja,
# lit, FileCheck and the CUDA Toolkit are taken from the system where they
# fit, else from PyPI. Writes build/settings.cmake, which CMakeLists.txt
# reads, and build/env.sh for scripts.
#
#   PCG_CACHE              where downloads are kept      (~/.cache/pcg)
#   PCG_BUILD_DIR          build tree                    (build)
#   PCG_TORCH_PYTHON       a Python that has the pinned torch
#   PCG_CUDA_HOME          the CUDA Toolkit to use
#   PCG_IGNORE_SYSTEM_CUDA 1: take the CUDA Toolkit from PyPI
#   CXX                    C++ compiler                  (g++)
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=tools/versions.env
source "$root/tools/versions.env"
cache="${PCG_CACHE:-${HOME:?}/.cache/pcg}"
build="${PCG_BUILD_DIR:-$root/build}"

say() { printf '[setup] %s\n' "$*"; }
die() {
  printf '[setup] error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '[setup]        %s\n' "$line" >&2; done
  exit 1
}

# version_at_least HAVE WANT
version_at_least() {
  [[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]
}

make_venv() {  # make_venv FOLDER PYTHON
  "$2" -c 'import ensurepip, venv' 2>/dev/null ||
    die "python3 cannot make virtual environments (module venv)." \
        "Get it with: apt-get install python3-venv"
  rm -rf "$1"
  "$2" -m venv "$1"
}

pip_install() {  # pip_install PYTHON ARGUMENT...
  local python="$1"
  shift
  PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip install \
    --no-input --no-warn-script-location "$@" ||
    die "pip could not install: $*" \
        "It needs to reach a package index (see pip's message above) and" \
        "free space under $cache."
}

# --- The compiler and Python -------------------------------------------------

cxx="${CXX:-g++}"
command -v "$cxx" >/dev/null ||
  die "no C++ compiler ($cxx)." "Get one with: apt-get install g++"
cxx="$(command -v "$cxx")"
if "$cxx" --version | head -n 1 | grep -qv clang; then
  gxx_version="$("$cxx" -dumpversion)"
  version_at_least "$gxx_version" "$GXX_MINIMUM" ||
    die "$cxx is version $gxx_version; pcg needs $GXX_MINIMUM or newer." \
        "Get one with: apt-get install g++-$GXX_MINIMUM;" \
        "then: CXX=g++-$GXX_MINIMUM $0"
fi

command -v python3 >/dev/null ||
  die "no python3." "Get it with: apt-get install python3 python3-venv"
python_minor="$(python3 -c 'import sys; print(sys.version_info[1]
    if sys.version_info[0] == 3 else 0)')"
((python_minor >= PYTHON_MINIMUM)) ||
  die "python3 is 3.$python_minor; pcg needs 3.$PYTHON_MINIMUM or newer."

mkdir -p "$cache" "$build" ||
  die "cannot write to $cache or $build." "Set PCG_CACHE or PCG_BUILD_DIR."
if command -v flock >/dev/null; then
  exec 9>"$cache/lock"
  flock -n 9 || {
    say "waiting for another set-up that uses $cache"
    flock 9
  }
fi

# --- torch -------------------------------------------------------------------

# Prints the folder of a Python's torch if it is the pinned version, built for
# the pinned CUDA. Importing torch takes seconds, so its files are read.
torch_folder() {
  "$1" - "$TORCH_VERSION" "$CUDA_VERSION" 2>/dev/null <<'PYTHON'
import importlib.util, os, re, sys
spec = importlib.util.find_spec("torch")
folder = os.path.dirname(spec.origin)
text = open(os.path.join(folder, "version.py")).read()
version = re.search(r"__version__ = '([^'+]*)", text).group(1)
cuda = re.search(r"^cuda\b[^=]*= '([^']*)'", text, re.M).group(1)
sys.exit(version != sys.argv[1] or cuda != sys.argv[2] or print(folder))
PYTHON
}

if [[ -n "${PCG_TORCH_PYTHON:-}" ]]; then
  python="$PCG_TORCH_PYTHON"
  torch="$(torch_folder "$python")" ||
    die "PCG_TORCH_PYTHON=$python has no torch $TORCH_VERSION for CUDA" \
        "$CUDA_VERSION. Get it with: $python -m pip install" \
        "torch==$TORCH_VERSION; or unset the variable."
elif torch="$(torch_folder python3)"; then
  python="$(command -v python3)"
else
  venv="$cache/torch-$TORCH_VERSION-py3.$python_minor"
  python="$venv/bin/python"
  if [[ ! -e "$venv/.complete" ]]; then
    ((python_minor <= PYTHON_MAXIMUM)) ||
      die "torch $TORCH_VERSION has no package for python3.$python_minor." \
          "Set PCG_TORCH_PYTHON to a Python that has it."
    free_kib="$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')"
    ((free_kib > 9 * 1024 * 1024)) ||
      die "torch needs about 9 GB of free space while it installs, and" \
          "$cache has $((free_kib / 1024 / 1024)) GB. Set PCG_CACHE."
    say "installing torch $TORCH_VERSION into $venv"
    say "(once; a download of about 3 GB, 5 GB on disk)"
    make_venv "$venv" python3
    pip_install "$python" "torch==$TORCH_VERSION" \
      "numpy==$NUMPY_VERSION; python_version < '3.14'" \
      "numpy==$NUMPY_VERSION_PYTHON_3_14; python_version >= '3.14'"
    torch_folder "$python" >/dev/null ||
      die "the torch $TORCH_VERSION that pip installed is not built for CUDA" \
          "$CUDA_VERSION. Is pip set to use another index?"
    touch "$venv/.complete"
  fi
  torch="$(torch_folder "$python")" ||
    die "$venv is damaged." "Remove it and run this again: rm -rf $venv"
  # The models that the tests run. A Python of the user's own is left alone:
  # without torchvision that test is skipped.
  if [[ ! -d "$venv/lib/python3.$python_minor/site-packages/torchvision" ]]; then
    say "installing torchvision $TORCHVISION_VERSION into $venv"
    pip_install "$python" --no-deps "torchvision==$TORCHVISION_VERSION" \
      "pillow==$PILLOW_VERSION"
  fi
fi
site="$(dirname "$torch")"

# --- CMake, Ninja and lit ----------------------------------------------------

tools="$cache/tools-py3.$python_minor-cmake$CMAKE_VERSION-ninja$NINJA_VERSION"
tools+="-lit$LIT_VERSION"

# find_tool VARIABLE NAME...: the first NAME on PATH.
find_tool() {
  local name path
  for name in "${@:2}"; do
    if path="$(command -v "$name")" && "$path" --version >/dev/null 2>&1; then
      printf -v "$1" '%s' "$path"
      return 0
    fi
  done
  return 1
}

missing=()
if find_tool cmake cmake; then
  cmake_version="$("$cmake" --version | awk 'NR == 1 { print $3 }')"
  version_at_least "$cmake_version" "$CMAKE_MINIMUM" || cmake=
fi
if [[ -z "${cmake:-}" ]]; then
  missing+=("cmake==$CMAKE_VERSION")
  cmake="$tools/bin/cmake"
fi
find_tool ninja ninja ninja-build || {
  missing+=("ninja==$NINJA_VERSION")
  ninja="$tools/bin/ninja"
}
find_tool lit lit llvm-lit || {
  missing+=("lit==$LIT_VERSION")
  lit="$tools/bin/lit"
}
for package in "${missing[@]}"; do
  if [[ ! -x "$tools/bin/${package%%=*}" ]]; then
    say "installing ${missing[*]} into $tools"
    make_venv "$tools" python3
    pip_install "$tools/bin/python" --quiet "${missing[@]}"
    break
  fi
done

# --- FileCheck ---------------------------------------------------------------

find_tool filecheck FileCheck FileCheck-{20..14} || {
  # Torch's compiler back end, which pip installs with torch, brings one.
  filecheck="$site/triton/FileCheck"
  [[ -f "$filecheck" ]] ||
    die "no FileCheck." "Get it with: apt-get install llvm-14-tools"
  if [[ ! -x "$filecheck" ]] && ! chmod +x "$filecheck" 2>/dev/null; then
    mkdir -p "$cache/bin"
    cp "$filecheck" "$cache/bin/FileCheck"
    filecheck="$cache/bin/FileCheck"
    chmod +x "$filecheck"
  fi
  "$filecheck" --version >/dev/null ||
    die "$filecheck does not run here." \
        "Get another with: apt-get install llvm-14-tools"
}

# --- The CUDA Toolkit --------------------------------------------------------

# Torch's CMake files want the libraries with their headers, not nvcc alone.
cuda_is_complete() {
  local lib="$1/lib64" file
  for file in "$1/bin/nvcc" "$1/include/cuda_runtime.h" \
    "$1/include/cublas_v2.h" "$1/include/cufft.h" "$lib/libcudart.so" \
    "$lib/libcublas.so" "$lib/libcufft.so" "$lib/libcurand.so" \
    "$lib/libnvrtc.so"; do
    [[ -e "$file" ]] || return 1
  done
  "$1/bin/nvcc" --version 2>/dev/null | grep -q "release $CUDA_VERSION,"
}

find_system_cuda() {
  local candidate nvcc
  [[ "${PCG_IGNORE_SYSTEM_CUDA:-0}" != 1 ]] || return 1
  nvcc="$(command -v nvcc || true)"
  for candidate in "${CUDAToolkit_ROOT:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" \
    "${nvcc:+$(dirname "$(dirname "$(readlink -f "$nvcc")")")}" \
    "/usr/local/cuda-$CUDA_VERSION" /usr/local/cuda; do
    if [[ -n "$candidate" ]] && cuda_is_complete "$candidate"; then
      cuda="$candidate"
      return 0
    fi
  done
  return 1
}

# Adds what `$2` has and `$1` has not, as links.
overlay() {
  (cd "$2" && find . -type d -print0) | (cd "$1" && xargs -0 mkdir -p)
  (cd "$2" && find . ! -type d -print0) |
    while IFS= read -r -d '' file; do
      [[ -e "$1/$file" ]] || ln -sfn "$2/${file#./}" "$1/$file"
    done
}

if [[ -n "${PCG_CUDA_HOME:-}" ]]; then
  cuda="$PCG_CUDA_HOME"
  [[ -x "$cuda/bin/nvcc" ]] || die "PCG_CUDA_HOME=$cuda has no bin/nvcc."
elif ! find_system_cuda; then
  libraries="$site/nvidia/cu${CUDA_VERSION%%.*}"
  key="$(printf '%s' "$libraries" | cksum | cut -d ' ' -f 1)"
  folder="$cache/cuda-$NVIDIA_CUDA_NVCC_VERSION-$key"
  cuda="$folder/nvidia/cu${CUDA_VERSION%%.*}"
  if [[ ! -e "$folder/.complete" ]]; then
    [[ -d "$libraries/lib" ]] ||
      die "no CUDA Toolkit $CUDA_VERSION, and the torch in $torch" \
          "brings no CUDA libraries to build one from. Install the toolkit" \
          "and set PCG_CUDA_HOME, or let this script install torch."
    say "no CUDA Toolkit $CUDA_VERSION on this system; putting one together" \
      "in $folder"
    rm -rf "$folder"
    pip_install "$python" --quiet --no-deps --target "$folder" \
      "nvidia-cuda-nvcc==$NVIDIA_CUDA_NVCC_VERSION" \
      "nvidia-cuda-crt==$NVIDIA_CUDA_CRT_VERSION" \
      "nvidia-nvvm==$NVIDIA_NVVM_VERSION" \
      "nvidia-cuda-cccl==$NVIDIA_CUDA_CCCL_VERSION"
    overlay "$cuda" "$libraries"
    for library in "$cuda"/lib/lib*.so.*; do
      link="${library%%.so.*}.so"
      [[ -e "$link" ]] || ln -s "$(basename "$library")" "$link"
    done
    [[ -e "$cuda/lib64" ]] || ln -s lib "$cuda/lib64"
    cuda_is_complete "$cuda" ||
      die "the CUDA Toolkit in $cuda is incomplete." \
          "Install CUDA Toolkit $CUDA_VERSION and set PCG_CUDA_HOME."
    touch "$folder/.complete"
  fi
fi

# --- What was found ----------------------------------------------------------

# write_if_changed FILE TEXT: true if it was written.
write_if_changed() {
  [[ -f "$1" && "$(cat "$1")" == "$2" ]] && return 1
  printf '%s\n' "$2" >"$1.new"
  mv "$1.new" "$1"
}

cache_entry() { printf 'set(%s "%s" CACHE %s "" FORCE)\n' "$1" "$3" "$2"; }
settings="$(
  echo '# Written by tools/setup.sh.'
  cache_entry CMAKE_CXX_COMPILER FILEPATH "$cxx"
  cache_entry CMAKE_MAKE_PROGRAM FILEPATH "$ninja"
  cache_entry Torch_DIR PATH "$torch/share/cmake/Torch"
  cache_entry CUDAToolkit_ROOT PATH "$cuda"
  cache_entry CUDA_TOOLKIT_ROOT_DIR PATH "$cuda"
  cache_entry CMAKE_CUDA_COMPILER FILEPATH "$cuda/bin/nvcc"
  cache_entry CMAKE_CUDA_HOST_COMPILER FILEPATH "$cxx"
  cache_entry PCG_PYTHON FILEPATH "$python"
  cache_entry PCG_LIT FILEPATH "$lit"
  cache_entry PCG_FILECHECK FILEPATH "$filecheck"
)"
if write_if_changed "$build/settings.cmake" "$settings"; then
  # Another torch or toolkit: nothing that CMake remembers holds.
  rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles"
fi

environment="$(
  echo '# Written by tools/setup.sh.'
  for variable in cache build python torch cmake ninja lit filecheck cuda; do
    printf 'pcg_%s=%q\n' "$variable" "${!variable}"
  done
)"
write_if_changed "$build/env.sh" "$environment" || true

say "torch     $torch"
say "CUDA      $cuda"
say "CMake     $cmake"
say "Ninja     $ninja"
say "lit       $lit"
say "FileCheck $filecheck"
