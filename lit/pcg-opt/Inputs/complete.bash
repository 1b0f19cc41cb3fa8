# Loads completion scripts from the file $1 and shows what they answer.
set -u
here="$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=/dev/null
source "$1"
compopt() { :; } # Only works while bash completes.

# show PROGRAM WORD...: the words as bash cuts them, the last one unfinished.
show() {
  local words=() word
  for word in "$@"; do
    case $word in
      --*=) words+=("${word%=}" "=") ;;
      --*=*) words+=("${word%%=*}" "=" "${word#*=}") ;;
      *) words+=("$word") ;;
    esac
  done
  COMP_WORDS=("${words[@]}")
  COMP_CWORD=$((${#words[@]} - 1))
  COMPREPLY=()
  "_${1//-/_}"
  echo "$*: ${COMPREPLY[*]}"
}

show pcg-opt --partit
show pcg-opt --min-seg
show pcg-opt --emit=
show pcg-opt --emit=h
show pcg-opt --emit pl
show pcg-opt --report=j
show pcg-opt --report "$here/complete.ba"
show pcg-opt --print-ir-after=outl
show pcg-opt --make-c
show pcg-opt "$here/complete.ba"
show pcg-run --comp
show pcg-run --backend=
show pcg-run --device c
