#!/usr/bin/env bash
# try_dist.sh FOLDER [SUITE] [MIRROR]: installs each package of make dist or make deb that is in FOLDER, and lets the program write. Each
# gets its own copy of an empty system that debootstrap makes (Debian 12 by default). Needs root and a network. SYSTEM=PATH keeps the empty
# system there for the next call.
set -eu
shopt -s nullglob
folder=$(realpath "$1")
suite=${2:-bookworm} mirror=${3:-}  # no mirror: the one that debootstrap knows
[ "$(id -u)" = 0 ] || { echo "try_dist: needs root for chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "try_dist: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
files=("$folder"/*.tar.gz "$folder"/*.deb "$folder"/*.whl)
[ ${#files[@]} -gt 0 ] || { echo "try_dist: $folder has no .tar.gz, .deb or .whl, expected those of make dist or make deb" >&2; exit 1; }
systems=$(mktemp -d)
trap 'rm -rf --one-file-system "$systems"' EXIT
empty=${SYSTEM:-$systems/empty}
if [ ! -d "$empty" ]; then
  debootstrap --variant=minbase --include=python3-venv "$suite" "$systems/new" ${mirror:+"$mirror"} > "$systems/log" 2>&1 ||
    { tail -n 3 "$systems/log" >&2; exit 1; }
  mv "$systems/new" "$empty"
fi
grep -qx "VERSION_CODENAME=$suite" "$empty/etc/os-release" || { echo "try_dist: $empty is another system, expected $suite" >&2; exit 1; }

for file in "${files[@]}"; do
  case $file in
    # Unpacked at a place that the program was not built for.
    *.tar.gz) install="mkdir /opt/some && tar -C /opt/some -xzf *.tar.gz && ln -s /opt/some/*/bin/chaski /usr/local/bin/chaski" ;;
    # Its dependencies, if it has others than libc, are those of this system.
    *.deb) install="dpkg -i *.deb || { apt-get update && apt-get install -y --no-install-recommends ./*.deb; }" ;;
    *.whl) install="python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-index *.whl && ln -s /opt/venv/bin/chaski /usr/local/bin/chaski" ;;
  esac
  system=$systems/system
  cp -a "$empty" "$system"
  cp "$file" "$system/tmp"
  text=$(chroot "$system" sh -c "cd /tmp && ($install) >/tmp/log 2>&1 || { tail -n 3 /tmp/log >&2; exit 1; }
    export HOME=/root PATH=\$PATH:/usr/local/bin && cd / && chaski run --device cpu -n 8 --seed 1") || true
  case $text in
    "Once upon a time"*) echo "ok      $(basename "$file") with $(chroot "$system" ldd --version | sed -n '1s/.* /glibc /p'): $text" ;;
    *) echo "FAILED  $(basename "$file"): $text" >&2; exit 1 ;;
  esac
  rm -rf --one-file-system "$system"
done
