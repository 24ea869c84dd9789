#!/usr/bin/env bash
# format.sh [--fix]: is every C++ file as clang-format-14 would write it? Exit 77: there is no clang-format-14.
set -u
cd "$(dirname "$0")/../.." || exit 2
if ! command -v clang-format-14 >/dev/null; then
  echo "SKIPPED: no clang-format-14 (another version formats differently): apt-get install clang-format-14"
  exit 77
fi
how=(--dry-run --Werror)
[ "${1:-}" = --fix ] && how=(-i)
find libactor tune sgd nodes examples tests tools \( -name '*.cpp' -o -name '*.hpp' \) -not -path '*/build/*' -print0 |
  xargs -0 -r clang-format-14 --style=file "${how[@]}"
