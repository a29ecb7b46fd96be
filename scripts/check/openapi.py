#!/usr/bin/env python3
"""Checks /openapi.json of chaski serve with PyPI's schemathesis: openapi.py CHASKI [SECONDS].

schemathesis makes requests from the document, valid and invalid ones, for SECONDS (default 60). No
request may get status 5xx (501 and 507 where the document has them), a status or a type of content
that the document lacks, or a body that differs from it, and each invalid one must be refused. Two
checks are off. Not every valid request is accepted: JSON Schema cannot say that a text is a
grammar, or that a number is a token of the model. A method that libevent does not know, such as
QUERY, gets 501 (RFC 9110, section 9.1) where the check wants 405. Skipped if the package is not
installed.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = shutil.which("schemathesis",
                    path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
if not TOOL:
    print("SKIPPED: openapi.py: schemathesis is not installed (pip install schemathesis)")
    sys.exit(0)

CHASKI = sys.argv[1] if len(sys.argv) > 1 else "build/chaski"
SECONDS = sys.argv[2] if len(sys.argv) > 2 else "60"
MODEL = Path(__file__).resolve().parents[2] / "models/bundled/story.quipu"
SETTINGS = """[checks]
positive_data_acceptance.enabled = false
unsupported_method.enabled = false
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501", "503", "507"]
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([CHASKI, "serve", "--port", "0", "--max-tokens", "32", "--no-log",
                                   "-q", "--embedding-model", f"vectors={MODEL}", "--store",
                                   f"{folder}/store"], stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().strip()
            settings = Path(folder) / "schemathesis.toml"
            settings.write_text(SETTINGS)
            done = subprocess.run(
                [TOOL, f"--config-file={settings}", "run", address + "/openapi.json",
                 "--wait-for-schema=30", f"--max-time={SECONDS}", "--no-shrink",
                 "--request-timeout=60", "--warnings=off"], cwd=folder)
            assert server.poll() is None, "the server has ended"
        finally:
            server.terminate()
            server.wait()
    sys.exit(done.returncode)


main()
