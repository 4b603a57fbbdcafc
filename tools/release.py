"""Builds a release and checks it: `python -m tools.release`, or `make release`.

Builds the sdist and the wheel, checks their metadata, installs each wheel in a clean environment of
every supported Python that is on this machine, and runs `kctl demo` there. Fills in the Homebrew
formula. Nothing is published: the last line says how.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from kctl import DISTRIBUTION, __version__

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
FORMULA = ROOT / "packaging" / "kctl.rb.in"
SDIST_URL = "https://files.pythonhosted.org/packages/source/{initial}/{name}/{file}"
# Parts of a clean environment that kctl did not bring.
_OF_PIP = re.compile(r"^(pip|setuptools|pkg_resources|_distutils_hack|__pycache__)")


class ReleaseError(Exception):
    """A check that failed."""


def project() -> dict[str, object]:
    """Return the table [project] of pyproject.toml."""
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def supported_versions() -> list[str]:
    """Return the versions of Python that the classifiers name: "3.11", ..."""
    named = re.findall(r"Python :: (3\.\d+)", str(project()["classifiers"]))
    return sorted(named, key=lambda version: int(version.partition(".")[2]))


def find_pythons() -> dict[str, str]:
    """Return the path of each supported Python on the PATH, by version."""
    found = {}
    for version in supported_versions():
        path = shutil.which(f"python{version}")
        # A shim of a version manager may be there without its Python.
        if path is not None and run([path, "-c", ""], check=False).returncode == 0:
            found[version] = path
    return found


def run(words: list[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command; ReleaseError with its output if it fails and `check` is set."""
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if check and ran.returncode:
        raise ReleaseError(f"{' '.join(words)}\n{ran.stdout}{ran.stderr}")
    return ran


def check_tag(tag: str) -> None:
    """Raise ReleaseError unless `tag` is v and the version, which CITATION.cff has, too."""
    if tag != f"v{__version__}":
        raise ReleaseError(f"the tag is {tag}, the version {__version__}")
    if f"\nversion: {__version__}\n" not in (ROOT / "CITATION.cff").read_text():
        raise ReleaseError("CITATION.cff names another version")


def build() -> list[Path]:
    """Build the sdist and the wheel into an empty dist/; return their paths."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)])
    files = sorted(DIST.iterdir())
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])
    return files


def installed_bytes(environment: Path) -> int:
    """Return the size of what was installed into a clean environment, pip's own parts excluded."""
    [packages] = environment.glob("lib/python3*/site-packages")
    return sum(
        file.stat().st_size
        for file in packages.rglob("*")
        if file.is_file() and not _OF_PIP.match(file.relative_to(packages).parts[0])
    )


def install(python: str, package: Path, environment: Path) -> Path:
    """Install `package` into a new environment; return the path of its `kctl`."""
    run([python, "-m", "venv", str(environment)])
    run([str(environment / "bin" / "pip"), "install", "--quiet", str(package)])
    run([str(environment / "bin" / "pip"), "check"])
    return environment / "bin" / "kctl"


def smoke_test(kctl: Path) -> None:
    """Run the installed command: its version, and the demo, which needs no extra."""
    shown = run([str(kctl), "--version"]).stdout
    if shown != f"kctl {__version__}\n":
        raise ReleaseError(f"{kctl} is {shown}")
    run([str(kctl), "demo"])


def fill_formula(sdist: Path) -> str:
    """Return the Homebrew formula for `sdist`."""
    facts = project()
    urls = facts["urls"]
    assert isinstance(urls, dict)
    fields = {
        "DESCRIPTION": str(facts["description"]),
        "REPOSITORY": str(urls["Repository"]),
        "SDIST_URL": SDIST_URL.format(initial=DISTRIBUTION[0], name=DISTRIBUTION, file=sdist.name),
        "SDIST_SHA256": hashlib.sha256(sdist.read_bytes()).hexdigest(),
    }
    return re.sub(r"@(\w+)@", lambda found: fields[found[1]], FORMULA.read_text())


def release(tag: str | None) -> None:
    """Build and check a release; ReleaseError where a check fails."""
    if tag is not None:
        check_tag(tag)
    files = build()
    [sdist] = [file for file in files if file.name.endswith(".tar.gz")]
    [wheel] = [file for file in files if file.suffix == ".whl"]
    say(f"built and checked {sdist.name} and {wheel.name}")
    pythons = find_pythons()
    for version, python in pythons.items():
        with tempfile.TemporaryDirectory(prefix="kctl-release-") as directory:
            environment = Path(directory) / "venv"
            # The oldest one also builds the sdist as an installation from source does.
            package = sdist if version == min(pythons) else wheel
            smoke_test(install(python, package, environment))
            size = installed_bytes(environment) / 1_000_000
        say(f"Python {version}: {package.name} works, {size:.0f} MB")
    for version in set(supported_versions()) - set(pythons):
        say(f"Python {version}: not on this machine, not tried")
    (DIST / "kctl.rb").write_text(fill_formula(sdist))
    say("wrote dist/kctl.rb, the Homebrew formula")
    say(f"publish: git tag v{__version__} && git push --tags")


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + os.linesep)
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="fail unless the tag names the version")
    try:
        release(parser.parse_args().tag)
    except ReleaseError as failed:
        sys.exit(f"error: {failed}")
