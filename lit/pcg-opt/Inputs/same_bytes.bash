# same_bytes.bash FOLDER: writes model.pt in every form, in several locales, and
# says whether the bytes are the same. FOLDER/locales may hold locales.
set -eu
cd "$1"
export LOCPATH="$PWD/locales"

compare() { # NAME COMMAND...
  local name="$1" index=0 locale
  shift
  for locale in C de_DE.UTF-8 tr_TR.UTF-8; do
    LC_ALL=$locale LANG=$locale "$@" >"$name.$index"
    cmp "$name.0" "$name.$index"
    index=$((index + 1))
  done
  echo "$name: the same"
}

form() { "$PCG_OPT" --partition --emit="$1" model.pt 2>/dev/null; }
report() { "$PCG_OPT" --partition --report=json --stats model.pt -o out.pt; }

compare archive form archive
compare plan form plan
compare dot form dot
compare html form html
compare report report
