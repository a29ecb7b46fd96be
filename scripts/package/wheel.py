"""wheel.py USR LICENSE FOLDER VERSION PLATFORM: writes a Python wheel that carries the program.

pip copies the files of chaski-VERSION.data/scripts to a bin folder, and those of data to the folder above it.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path


def main() -> None:
    usr, license_file, folder, version, platform = sys.argv[1:]
    tag = f"py3-none-{platform}"
    info, data = f"chaski-{version}.dist-info", f"chaski-{version}.data"
    files = {f"{data}/scripts/chaski": (Path(usr) / "bin/chaski").read_bytes()}
    for path in sorted((Path(usr) / "share").rglob("*")):
        if path.is_file():
            files[f"{data}/data/{path.relative_to(usr)}"] = path.read_bytes()
    files[f"{info}/licenses/LICENSE"] = Path(license_file).read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: chaski\nVersion: {version}\n"
        "Summary: runs, quantizes and inspects language models on this machine\n"
        "Requires-Python: >=3.7\nLicense-File: LICENSE\n"
    ).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: chaski\nRoot-Is-Purelib: false\nTag: {tag}\n"
    ).encode()
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip('=')},{len(content)}\n"
        for name, content in files.items()
    )
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()

    # A zip file has no times before 1980.
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]
    with zipfile.ZipFile(Path(folder) / f"chaski-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            wheel.writestr(entry, content)


main()
