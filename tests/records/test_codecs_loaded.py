"""All codecs are imported before a client needs them."""

import subprocess
import sys

AFTERWARDS = """
import sys
from kctl.records.compression import compress, decompress, load_codecs
from kctl.records.compression_stream import decompressed_chunks
assert "snappy" not in sys.modules
load_codecs()
before = set(sys.modules)
for codec in (1, 2, 3, 4):
    data = compress(codec, b"value" * 1000)
    assert decompress(codec, data) == b"value" * 1000
    assert b"".join(decompressed_chunks(codec, data)) == b"value" * 1000
print(sorted(set(sys.modules) - before))
"""


def test_no_codec_imports_anything_after_all_were_loaded():
    ran = subprocess.run(
        [sys.executable, "-c", AFTERWARDS], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
