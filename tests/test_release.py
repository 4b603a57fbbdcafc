"""What a release consists of: its files agree with each other, and a wheel works without extras."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from kctl import __version__
from tools import release

ROOT = Path(__file__).parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"
# What `pip install kctl-kafka` may take of a disk.
BASE_BYTES_MAX = 40_000_000


def workflow(name):
    return yaml.safe_load((WORKFLOWS / name).read_text())


def test_every_supported_python_is_tested_and_in_the_classifiers():
    facts = release.project()
    tested = workflow("test.yml")["jobs"]["fast"]["strategy"]["matrix"]["python"]
    assert release.supported_versions() == tested
    assert facts["requires-python"] == f">={tested[0]}"
    tried = workflow("release.yml")["jobs"]["build"]["steps"][1]["with"]["python-version"]
    assert tried.split() == tested


def test_the_workflow_runs_the_test_command_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    command = "pytest -q -n auto --dist loadfile"
    assert f".venv/bin/{command}" in readme
    assert f".venv/bin/{command}" in (ROOT / ".ci" / "run").read_text()
    steps = workflow("test.yml")["jobs"]["fast"]["steps"]
    assert f"python -m {command}" in [step.get("run") for step in steps]


def test_a_release_is_published_without_a_stored_token():
    publish = workflow("release.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert "PYPI" not in (WORKFLOWS / "release.yml").read_text()


def test_the_address_of_the_repository_is_in_one_place():
    address = release.project()["urls"]["Repository"]
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in ("kctl", "docs", "packaging", ".github", "tools"):
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix not in (".pyc", ".h")]
    naming = [
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.is_file() and address in path.read_text(errors="replace")
    ]
    assert naming == ["pyproject.toml"]


def test_a_tag_that_names_another_version_is_refused():
    release.check_tag(f"v{__version__}")
    with pytest.raises(release.ReleaseError, match=r"the tag is v9\.9"):
        release.check_tag("v9.9")


def test_the_formula_is_filled_in(tmp_path):
    sdist = tmp_path / f"kctl_kafka-{__version__}.tar.gz"
    sdist.write_bytes(b"sdist")
    formula = release.fill_formula(sdist)
    assert "@" not in formula.replace("python@3.12", "")
    assert f"/k/kctl-kafka/{sdist.name}" in formula
    assert re.search(r'sha256 "[0-9a-f]{64}"', formula)


def test_the_image_runs_as_another_user_and_is_asked_for_its_health():
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    instructions = [line.split(None, 1) for line in lines if re.match(r"[A-Z]+ ", line)]
    assert ["USER", "kctl"] in instructions
    commands = {name: text for name, text in instructions if name in ("CMD", "HEALTHCHECK")}
    assert "http://127.0.0.1:9404/healthz" in commands["HEALTHCHECK"]
    assert "--metrics-port 0.0.0.0:9404" in commands["CMD"]
    assert "exec kctl serve --data-dir /data" in commands["CMD"]
    from_lines = [text for name, text in instructions if name == "FROM"]
    assert len(from_lines) == 2


def test_the_command_of_the_image_serves(tmp_path):
    """The port and directory are set, and the advertised address is Docker's default."""
    import json

    from kctl.runtime.real.shell import Shell

    [command] = re.findall(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    words = json.loads(command)[2]
    assert "0.0.0.0:9092" in words
    words = words.replace("0.0.0.0:9092", "0.0.0.0:0").replace("/data", "data")
    words = words.replace("0.0.0.0:9404", "0")
    with Shell() as shell:
        shell.set("KCTL_ADVERTISED", "localhost:9092")
        broker = shell.start(f"{words} --ready-file ready")
        assert shell.wait_for("ready", broker).strip()


@pytest.mark.slow
def test_a_clean_install_is_small_and_runs_the_demo(tmp_path):
    environment = tmp_path / "venv"
    copy = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "kctl", copy / "kctl", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    kctl = release.install(sys.executable, copy, environment)
    [packages] = environment.glob("lib/python3*/site-packages")
    assert not [name for name in ("numpy", "pyarrow", "zstandard") if (packages / name).exists()]
    assert release.installed_bytes(environment) < BASE_BYTES_MAX
    release.smoke_test(kctl)
