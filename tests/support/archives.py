"""Archives of golden data, which every Python since 3.11.0 unpacks in the same way."""

import tarfile
from pathlib import Path


def opened_archive(path: Path) -> tarfile.TarFile:
    """Open a tar archive whose members are unpacked as data; Python before 3.11.4 knows no
    filters."""
    archive = tarfile.open(path)  # noqa: SIM115 - the caller closes it
    archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
    return archive
