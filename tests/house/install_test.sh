#!/usr/bin/env bash
# `cmake --install` of a build with all parts installs everything or nothing, and leaves the prefix's root clean. The parts
# are configured, not built: empty files stand in for what a build makes, and a few lines for nanobind and PyTorch, as
# what is installed where does not depend on them.
# tools/uninstall removes all of it.
# Usage: install_test.sh BUILD SOURCE
set -euo pipefail
build=$1 source=$2
work=$build/install_test
rm -rf "$work"
mkdir -p "$work/nanobind"
fail() { echo "install: $*" >&2; exit 1; }

cat >"$work/nanobind/__main__.py" <<'END'
import os
print(os.path.dirname(os.path.abspath(__file__)))
END
touch "$work/nanobind/__init__.py"
cat >"$work/nanobind/nanobind-config.cmake" <<'END'
function(nanobind_add_module name)
  list(FILTER ARGN INCLUDE REGEX "cpp$")
  add_library(${name} MODULE ${ARGN})
endfunction()
function(nanobind_add_stub name)
endfunction()
END
printf '#!/bin/sh\necho "%s;2.13.0;1;%s;.so"\n' "$work/torch" "$work/torch" >"$work/python"
chmod +x "$work/python"
PYTHONPATH=$work cmake -S "$source" -B "$work/build" -G Ninja -DTUTTI_TESTS=OFF -DTUTTI_PYTHON=ON -DTUTTI_TORCH=ON \
  -DTUTTI_TORCH_PYTHON="$work/python" -DCMAKE_SKIP_RPATH=ON >"$work/configure.log" 2>&1 ||
  { cat "$work/configure.log"; fail "configuring failed"; }

# Nothing is built: nothing is installed, and the error names all that is missing.
cmake --install "$work/build" --prefix "$work/nothing" >"$work/install.log" 2>&1 && fail "what is not built was installed"
grep -q "nothing is installed" "$work/install.log" || { cat "$work/install.log"; fail "the error does not say that nothing is installed"; }
[ ! -e "$work/nothing" ] || fail "stopped half-way: $(cd "$work/nothing" && find . -type f | head -n 3)"
mapfile -t missing < <(sed -n "s|^ *\($work/build/[^: ]*\)$|\1|p" "$work/install.log")
[ "${#missing[@]}" -ge 5 ] || { cat "$work/install.log"; fail "the error does not name the files"; }

# One is still missing.
for file in "${missing[@]}"; do mkdir -p "$(dirname "$file")" && touch "$file"; done
rm "${missing[-1]}"
cmake --install "$work/build" --prefix "$work/nothing" >"$work/install.log" 2>&1 && fail "it is not noticed that ${missing[-1]} is missing"
[ ! -e "$work/nothing" ] || fail "stopped half-way for want of ${missing[-1]}"

touch "${missing[-1]}"
cmake --install "$work/build" --prefix "$work/prefix" >"$work/install.log" 2>&1 || { tail "$work/install.log"; fail "stopped half-way"; }
[ "$(cd "$work/prefix" && echo *)" = "bin include lib share" ] || fail "the prefix has $(cd "$work/prefix" && echo *): expected bin include lib share"
[ -e "$work/prefix/share/doc/tutti/LICENSE" ] && [ -e "$work/prefix/share/doc/tutti/NOTICE" ] || fail "the licences are not in share/doc/tutti"

# It goes again, and what others have put beside it stays.
touch "$work/prefix/include/tutti/of_others.hpp"
"$source/tools/uninstall" "$work/build" >"$work/uninstall.log" || fail "uninstalling failed"
left=$(cd "$work/prefix" && find . \( ! -type d -o -name '*tutti*' \) | sort | paste -sd ' ')
[ "$left" = "./include/tutti ./include/tutti/of_others.hpp" ] || fail "uninstalling left $left"
"$source/tools/uninstall" "$work/build" 2>"$work/uninstall.log" && fail "uninstalling twice succeeded"
grep -q "nothing to remove" "$work/uninstall.log" || fail "uninstalling twice says $(cat "$work/uninstall.log")"
echo "install: everything or nothing, and back; the prefix has bin, include, lib and share"
rm -rf "$work"
