#!/usr/bin/env bash
# install_units.sh PREFIX DESTDIR: writes the units for systemd and, unless it is there, their config file. PREFIX is where the program
# will be; the files go below DESTDIR. The config file of PREFIX /usr is in /etc.
set -euo pipefail
umask 022
units=$(dirname "$0")/systemd
prefix=$1 destdir=$2
etc=$prefix/etc
[ "$prefix" != /usr ] || etc=/etc
for unit in chaski.service chaski.socket; do
  mkdir -p "$destdir$prefix/lib/systemd/system"
  sed -e "s|@PREFIX@|$prefix|g" -e "s|@ETC@|$etc|g" "$units/$unit" > "$destdir$prefix/lib/systemd/system/$unit"
done
# A changed file stays.
[ -e "$destdir$etc/chaski/serve.toml" ] || install -D -m 644 "$units/serve.toml" "$destdir$etc/chaski/serve.toml"
