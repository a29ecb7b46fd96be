#!/usr/bin/env bash
# deb.sh FOLDER [DEPENDS]: makes a Debian package of FOLDER/root, where make install has written its files below usr/. Without DEPENDS,
# dpkg-shlibdeps finds the needed libraries (except libcurl, which chaski pull loads at run time), so the package is for the Debian
# version it was made on.
set -eu
cd "$(dirname "$0")/../.."
folder=$1
root=$folder/root
for tool in dpkg-deb dpkg-shlibdeps; do
  command -v $tool >/dev/null || { echo "deb: $tool is missing: apt-get install dpkg-dev" >&2; exit 1; }
done

strip --strip-unneeded "$root/usr/bin/chaski"
mkdir -p "$root/usr/share/zsh/vendor-completions" "$root/usr/share/doc/chaski" "$root/DEBIAN" "$folder/debian"
mv "$root/usr/share/zsh/site-functions/_chaski" "$root/usr/share/zsh/vendor-completions/_chaski"
rmdir "$root/usr/share/zsh/site-functions"
gzip -9n "$root"/usr/share/man/man1/*.1
install -m 644 LICENSE "$root/usr/share/doc/chaski/copyright"

# dpkg keeps a changed config file. Nothing starts or enables the units: the administrator does. systemd reads the new unit after
# an upgrade.
echo /etc/chaski/serve.toml > "$root/DEBIAN/conffiles"
cat > "$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
END
chmod 755 "$root/DEBIAN/postinst"

# dpkg-shlibdeps needs the description of a source package, of which it uses only the name.
printf 'Source: chaski\n\nPackage: chaski\nArchitecture: any\n' > "$folder/debian/control"
depends=${2:-$(cd "$folder" && dpkg-shlibdeps -O root/usr/bin/chaski 2>/dev/null | sed -n 's/^shlibs:Depends=//p')}
[ -n "$depends" ] || { echo "deb: dpkg-shlibdeps found no libraries for $root/usr/bin/chaski" >&2; exit 1; }
version=$(CHASKI_CONFIG=none "$root/usr/bin/chaski" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
cat > "$root/DEBIAN/control" <<END
Package: chaski
Version: $version
Architecture: $architecture
Maintainer: the chaski authors <chaski@localhost>
Installed-Size: $(du -sk "$root/usr" "$root/etc" | awk '{ n += $1 } END { print n }')
Depends: $depends
Recommends: libcurl4, ca-certificates
Suggests: libopenblas0
Section: science
Priority: optional
Description: runs, quantizes and inspects language models on this machine
 chaski completes prompts, chats, serves programs over HTTP and quantizes
 models. It is one program with a small model built in. It reads GGUF files,
 Hugging Face folders and llama2.c models, and runs on the CPU and on NVIDIA
 GPUs.
END
package=$folder/chaski_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
