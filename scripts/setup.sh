#!/usr/bin/env bash
# Installs the packages for building and testing chaski as root: on Debian 12 or later and Ubuntu 24.04 or later by apt-get, on Fedora by
# dnf. On other systems it only names missing headers.
#   --dev    also packages for make format, make neon, make fuzz, make deb, make dist and .ci/run.
#            The tests of man pages, units and completions need them too.
#            Not for make neon and make dist on Fedora: its cross compiler comes without libstdc++, its libraries without archives.
#   --mpi    also OpenMPI, for runs on several machines
#   --print  only print the names of the packages; --print fedora and --print debian: of that system
set -eu
debian="g++ make binutils libcli11-dev libfmt-dev doctest-dev libopenblas0 nlohmann-json3-dev libpcre2-dev libutf8proc-dev libxxhash-dev libedit-dev libtomlplusplus-dev libcurl4-openssl-dev libevent-dev"
debian_dev="dpkg-dev debootstrap python3 man-db mandoc systemd zsh fish clang-format clang libclang-rt-dev ccache qemu-user-static g++-aarch64-linux-gnu libc6-dev-arm64-cross"
debian_mpi="libopenmpi-dev openmpi-bin openssh-client" fedora_mpi="openmpi-devel openssh-clients"
fedora="gcc-c++ make binutils cli11-devel fmt-devel doctest-devel openblas-serial json-devel pcre2-devel utf8proc-devel xxhash-devel libedit-devel tomlplusplus-devel libcurl-devel libevent-devel"
fedora_dev="dpkg-dev debootstrap python3 man-db mandoc systemd zsh fish clang-tools-extra clang compiler-rt ccache"

dev=0 mpi=0 print=0 system=""
while [ $# -gt 0 ]; do
  case $1 in
    --dev) dev=1 ;;
    --mpi) mpi=1 ;;
    --print) print=1; case ${2:-} in debian | fedora) system=$2; shift ;; esac ;;
    *) echo "setup: unexpected $1, expected --dev, --mpi or --print" >&2; exit 2 ;;
  esac
  shift
done
[ -n "$system" ] || { command -v apt-get >/dev/null 2>&1 && system=debian; } || { command -v dnf >/dev/null 2>&1 && system=fedora; } || true

case $system in
  debian)
    packages=$debian
    [ $dev = 0 ] || packages="$packages $debian_dev"
    [ $mpi = 0 ] || packages="$packages $debian_mpi"
    is_there() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }
    install="apt-get install -y --no-install-recommends" refresh="apt-get update -qq" ;;
  fedora)
    packages=$fedora
    [ $dev = 0 ] || packages="$packages $fedora_dev"
    [ $mpi = 0 ] || packages="$packages $fedora_mpi"
    is_there() { rpm -q --quiet "$1"; }
    install="dnf install -y --setopt=install_weak_deps=False" refresh=true ;;
esac

if [ $print = 1 ]; then echo "${packages:-}"; exit 0; fi
if [ -n "$system" ]; then
  missing=""
  for p in $packages; do is_there "$p" || missing="$missing $p"; done
  if [ -z "$missing" ]; then echo "setup: everything is installed"; exit 0; fi
  if [ "$(id -u)" != 0 ]; then echo "setup: packages are missing; as root, run: ${install%% -*} -y$missing" >&2; exit 1; fi
  $refresh
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive $install $missing
  echo "setup: installed$missing"
  exit 0
fi

bad=0
for header in CLI/CLI.hpp fmt/format.h doctest/doctest.h nlohmann/json.hpp pcre2.h utf8proc.h xxhash.h editline/readline.h toml++/toml.h curl/curl.h event2/http.h; do
  echo "#define PCRE2_CODE_UNIT_WIDTH 8
#include <stdio.h>
#include <$header>" | ${CXX:-g++} -std=c++20 -x c++ -fsyntax-only - 2>/dev/null || { echo "setup: header <$header> is missing" >&2; bad=1; }
done
exit "$bad"
