#!/usr/bin/env bash
# install_texts.sh CHASKI SHARE: writes the program's man pages and completions to a share folder.
set -euo pipefail
umask 022
chaski=$(realpath "$1")
share=$2
mkdir -p "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"
export CHASKI_CONFIG=none
"$chaski" --man > "$share/man/man1/chaski.1"
# The commands are the first words of the lines after "Commands:".
commands=$("$chaski" --help | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on && /^  [a-z]/ { print $1 }')
for command in $commands; do
  "$chaski" "$command" --man > "$share/man/man1/chaski-$command.1"
done
"$chaski" completion bash > "$share/bash-completion/completions/chaski"
"$chaski" completion zsh > "$share/zsh/site-functions/_chaski"
"$chaski" completion fish > "$share/fish/vendor_completions.d/chaski.fish"
