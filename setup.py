"""Builds kctl: Python files only or, with KCTL_COMPILED=1, also extensions of its request path.

`KCTL_COMPILED=1 pip install .` compiles the modules that pyproject.toml lists with mypyc, which pip
brings, and the C compiler of the machine (decision 0179). KCTL_COMPILED_OPTIMIZATION=0 compiles in
a third of the time.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import setup

COMPILED = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["kctl-compiled"]
IS_COMPILED = os.environ.get("KCTL_COMPILED") == "1"
# The commands of setuptools that need the extensions; the others only ask what the build requires.
BUILDING = {"bdist_wheel", "build_ext"}


def extensions() -> list[object]:
    """Return the extensions to build, translated to C."""
    if not IS_COMPILED or not BUILDING & set(sys.argv):
        return []
    from mypyc.build import mypycify

    # Types of other packages are unknown here: nothing but kctl's own is checked at run time.
    options = ["--config-file=", "--ignore-missing-imports"]
    return mypycify(
        [*options, *COMPILED["modules"]],
        opt_level=os.environ.get("KCTL_COMPILED_OPTIMIZATION", "3"),
        debug_level="0",
        group_name="kctl_compiled",
    )


setup(ext_modules=extensions(), setup_requires=COMPILED["requires"] if IS_COMPILED else [])
