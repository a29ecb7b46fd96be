#!/usr/bin/env bash
# try_dist.sh FOLDER [SUITE] [MIRROR]: starts each package of make dist in its own copy of an empty system that debootstrap makes
# (Debian 12 by default). Needs root and a network.
set -eu
folder=$(realpath "$1")
suite=${2:-bookworm} mirror=${3:-}  # no mirror: the one that debootstrap knows
[ "$(id -u)" = 0 ] || { echo "try_dist: needs root for chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "try_dist: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
systems=$(mktemp -d)
trap 'rm -rf --one-file-system "$systems"' EXIT
debootstrap --variant=minbase --include=python3-pip "$suite" "$systems/empty" ${mirror:+"$mirror"} > "$systems/log" 2>&1 ||
  { tail -3 "$systems/log" >&2; exit 1; }

# try FILE COMMAND...: unpacks FILE by COMMAND in a copy of the system, and lets the program write.
try() {
  local file=$1 system=$systems/system
  shift
  cp -a "$systems/empty" "$system"
  cp "$file" "$system/tmp"
  local text
  text=$(chroot "$system" sh -c "cd /tmp && ($*) >/tmp/log 2>&1 || { tail -3 /tmp/log >&2; exit 1; }
    export HOME=/root PATH=\$PATH:/usr/local/bin && cd / && chaski run --device cpu -n 8 --seed 1") || true
  case $text in
    "Once upon a time"*) echo "ok      $(basename "$file"): $text" ;;
    *) echo "FAILED  $(basename "$file"): $text" >&2; exit 1 ;;
  esac
  rm -rf --one-file-system "$system"
}

for file in "$folder"/*.tar.gz; do
  # Unpacked at a place that the program was not built for.
  try "$file" "mkdir /opt/some && tar -C /opt/some -xzf *.tar.gz && ln -s /opt/some/*/bin/chaski /usr/local/bin/chaski"
done
for file in "$folder"/*.deb; do try "$file" "dpkg -i *.deb"; done
for file in "$folder"/*.whl; do
  try "$file" "python3 -m pip install --no-index --root-user-action ignore \$(python3 -m pip install --help | grep -o -- --break-system-packages | head -1) *.whl"
done
