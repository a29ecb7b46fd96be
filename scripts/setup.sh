#!/usr/bin/env bash
# Installs the packages for building and testing chaski, on Debian 12 as root. On other systems it only names missing headers.
#   --dev    also packages for make format, make neon, make fuzz, make deb and the tests of man pages and completions
set -eu
packages="g++ make binutils libcli11-dev libfmt-dev doctest-dev libopenblas0 nlohmann-json3-dev libpcre2-dev libutf8proc-dev libxxhash-dev libedit-dev libtomlplusplus-dev libcurl4-openssl-dev"
[ "${1:-}" != --dev ] || packages="$packages dpkg-dev man-db mandoc zsh fish clang-format clang libclang-rt-14-dev qemu-user-static g++-aarch64-linux-gnu libc6-dev-arm64-cross"

if command -v apt-get >/dev/null 2>&1; then
  missing=""
  for p in $packages; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
  done
  if [ -z "$missing" ]; then echo "setup: everything is installed"; exit 0; fi
  if [ "$(id -u)" != 0 ]; then echo "setup: packages are missing; as root, run: apt-get install -y$missing" >&2; exit 1; fi
  apt-get update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
  echo "setup: installed$missing"
  exit 0
fi

bad=0
for header in CLI/CLI.hpp fmt/format.h doctest/doctest.h nlohmann/json.hpp pcre2.h utf8proc.h xxhash.h editline/readline.h toml++/toml.h curl/curl.h; do
  echo "#define PCRE2_CODE_UNIT_WIDTH 8
#include <stdio.h>
#include <$header>" | ${CXX:-g++} -std=c++20 -x c++ -fsyntax-only - 2>/dev/null || { echo "setup: header <$header> is missing" >&2; bad=1; }
done
exit "$bad"
