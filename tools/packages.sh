#!/usr/bin/env bash
# packages.sh GROUP…: installs the missing packages of these groups of packages.txt: by apt-get as root, else by sudo.
# Without root it names what is missing. Exit 1 when a package outside [optional] is still missing then.
set -u
list=$(dirname "$0")/packages.txt

# The packages of a group that are not installed, one a line.
missing_of() {
  local package
  while read -r package; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done < <(sed 's/#.*//' "$list" | awk -v group="[$1]" '/^\[/ { inside = ($1 == group); next } inside && NF { print $1 }')
}

if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian system: see tools/packages.txt for what is needed"
  exit 0
fi
mapfile -t wanted < <(for group in "$@"; do missing_of "$group"; done)
[ ${#wanted[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
  if ! command -v sudo >/dev/null || { [ ! -t 0 ] && ! sudo -n true 2>/dev/null; }; then
    echo "missing, and installing needs root: apt-get install --no-install-recommends ${wanted[*]}"
    as_root=()
    wanted=()
  fi
fi
if [ ${#wanted[@]} -gt 0 ]; then
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120)
  "${apt[@]}" update
  for group in "$@"; do  # one by one: a missing [optional] package must not keep the others away
    mapfile -t wanted < <(missing_of "$group")
    [ ${#wanted[@]} -eq 0 ] || "${apt[@]}" install --no-install-recommends "${wanted[@]}"
  done
fi

status=0
for group in "$@"; do
  [ "$group" = optional ] && continue
  mapfile -t still < <(missing_of "$group")
  if [ ${#still[@]} -gt 0 ]; then
    echo "missing [$group]: ${still[*]}"
    status=1
  fi
done
exit $status
