#!/usr/bin/env bash
# dist.sh FOLDER: packages a program that needs only libc, which make STATIC=1 install has written to FOLDER/root/usr:
#   chaski-VERSION-linux-MACHINE.tar.gz   bin and share; runs wherever it is unpacked. lib and etc are for systemd, at /usr and /etc
#   chaski_VERSION_ARCHITECTURE.deb
#   chaski-VERSION-py3-none-manylinux_X_Y_MACHINE.whl   for pip install; X.Y is the glibc that the program needs
#   SHA256SUMS
set -eu
cd "$(dirname "$0")/../.."
folder=$1
root=$folder/root
for tool in objdump strip python3; do
  command -v $tool >/dev/null || { echo "dist: $tool is missing: apt-get install binutils python3" >&2; exit 1; }
done

strip --strip-unneeded "$root/usr/bin/chaski"
needed=$(objdump -p "$root/usr/bin/chaski" | sed -n 's/^ *NEEDED *//p' | grep -Ev '^(libc|libm|libdl|librt|libpthread|ld-linux.*)\.so' || true)
[ -z "$needed" ] || { echo "dist: the program needs $(echo "$needed" | tr '\n' ' ')besides libc, expected make STATIC=1 dist" >&2; exit 1; }
version=$(CHASKI_CONFIG=none "$root/usr/bin/chaski" --version | cut -d' ' -f2)
machine=$(uname -m)
glibc=$(objdump -T "$root/usr/bin/chaski" | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -1 | sed 's/GLIBC_//')

# Equal programs make equal files, whenever they are packed.
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
name=chaski-$version-linux-$machine
mkdir "$folder/$name"
cp -r "$root/usr/." "$root/etc" "$folder/$name"
cp LICENSE README.md "$folder/$name"
tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$name" | gzip -9n > "$folder/$name.tar.gz"
rm -r "${folder:?}/$name"

python3 scripts/package/wheel.py "$root/usr" LICENSE "$folder" "$version" "manylinux_${glibc/./_}_$machine"

mkdir "$folder/deb"
mv "$root" "$folder/deb/root"
# dpkg-shlibdeps would ask for the libc of this machine's Debian: since 2.34 it is one library, and its table of symbols begins there.
scripts/package/deb.sh "$folder/deb" "libc6 (>= $glibc)" >/dev/null
mv "$folder"/deb/*.deb "$folder"
rm -r "${folder:?}/deb"

(cd "$folder" && sha256sum -- *.tar.gz *.deb *.whl > SHA256SUMS)
echo "dist: needs glibc $glibc"
ls -d "$folder"/*
