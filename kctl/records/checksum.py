"""Checksums of record batches: CRC-32C for v2 batches, CRC-32 for v0 and v1 messages.

Importing `crc32c` loads `importlib.metadata` to learn its own version, which takes longer than a
whole kctl command may. So its C extension is loaded directly, and the package is imported only if
the extension cannot be found.

Kafka 2.7: org.apache.kafka.common.utils.Crc32C, Crc32; KIP-98.
"""

import zlib
from collections.abc import Callable
from importlib.machinery import PathFinder

from kctl.protocol.primitives import Buffer


def _load_crc32c() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package else None
    spec = PathFinder.find_spec("crc32c._crc32c", list(places)) if places else None
    if spec is None or spec.loader is None:
        return _import_crc32c()
    module = spec.loader.create_module(spec)
    if module is None:
        return _import_crc32c()
    spec.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


def _import_crc32c() -> Callable[..., int]:
    from crc32c import crc32c

    return crc32c


_crc32c = _load_crc32c()

# CRC-32C of a buffer, the C function itself: the hot path pays no wrapper.
crc32c: Callable[[Buffer], int] = _crc32c

# CRC-32 of a buffer.
crc32: Callable[[Buffer], int] = zlib.crc32


def continue_crc32c(data: Buffer, crc: int) -> int:
    """Return the CRC-32C of bytes that have `crc`, followed by `data`."""
    return _crc32c(data, crc)


def continue_crc32(data: Buffer, crc: int) -> int:
    """Return the CRC-32 of bytes that have `crc`, followed by `data`."""
    return zlib.crc32(data, crc)
