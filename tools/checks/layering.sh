#!/usr/bin/env bash
# layering.sh [ROOT]: who may include whom. Prints each offence; exit 1 if there is one.
#
#             examples ──► sgd ──► tune ──► libactor ◄── nodes
#             tests, tools    ──► all of them, internal/ too (never installed)
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 2
inc='^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]'
src=(--include=*.hpp --include=*.cpp)
bad=0

# forbid WHY PATTERN FOLDER…
forbid() {
  local why=$1 pattern=$2
  shift 2
  while IFS= read -r hit; do
    echo "$hit   <- $why"
    bad=1
  done < <(grep -rnE "${src[@]}" "$pattern" "$@" 2>/dev/null)
}

forbid 'libactor/ is the bottom' "$inc(tune|sgd|nodes|examples|tests|tools)/" libactor
forbid 'tune/ sees libactor/ only' "$inc(sgd|nodes|examples|tests|tools)/" tune
forbid 'sgd/ sees tune/ and libactor/' "$inc(nodes|examples|tests|tools)/" sgd
forbid 'nodes/ sees libactor/ only' "$inc(tune|sgd|examples|tests|tools)/" nodes
forbid 'examples are written as users write' "$inc(nodes|tests|tools|[a-z]+/internal)/" examples
forbid 'tests/ do not use these' "${inc}examples/" tests
mapfile -t not_of_tools < <(find tests -mindepth 1 -maxdepth 1 -not -name tools 2>/dev/null)
forbid 'only tests/tools test tools/' "${inc}tools/" "${not_of_tools[@]:-tests}"
forbid 'nobody builds on tests/' "${inc}tests/" tools
forbid 'libactor/internal is not for these' "${inc}libactor/internal/" tune sgd examples
forbid 'tune/internal is private' "${inc}tune/internal/" libactor sgd nodes examples
forbid 'sgd/internal is private' "${inc}sgd/internal/" libactor tune nodes examples
forbid 'LibTorch belongs to sgd/' "$inc(torch|ATen|c10)/" \
  libactor tune nodes tests/libactor tests/tune tests/nodes tests/sim

# Public headers: what users compile. Only four show CAF (float_fix.hpp is a part of actor.hpp); none shows spdlog or an
# internal header (a template that needs one has it in the public header, in namespace internal).
mapfile -t public < <(
  find tune sgd -name '*.hpp' -not -path '*/internal/*' 2>/dev/null
  find libactor -maxdepth 1 -name '*.hpp' -not -name result.hpp -not -name actor.hpp -not -name float_fix.hpp -not -name peer.hpp 2>/dev/null)
src=(--include=*.hpp)
forbid 'CAF stays out of public headers' "${inc}caf/" "${public[@]}" /dev/null
forbid 'public headers are installed, internal ones are not' "$inc[a-z]+/internal/" \
  "${public[@]}" libactor/result.hpp libactor/actor.hpp libactor/float_fix.hpp libactor/peer.hpp \
  /dev/null
forbid 'spdlog in .cpp files only' "${inc}spdlog/" libactor tune sgd nodes
exit $bad
