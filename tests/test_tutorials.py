"""The commands of the tutorials run, in their order, with the exit status that the text states."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.runtime.real.shell import Shell

TUTORIALS = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))
# What each says at the end of its story.
RESULTS = {
    "kafka-for-tests": "tea\n",
    "retire-a-broker": "20000\n",
    "save-a-log-directory": "200\n",
    "topic-to-table": "",
}
_STATUS = re.compile(r"\s+# exit status (\d)$")
_READY = re.compile(r"--ready-file (\S+)")


def blocks(page):
    """(language, text) of each block of code."""
    return re.findall(r"^```(sh|python)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def adapted(command):
    """As on the page, with a free port and this Python."""
    if "kctl serve" in command and "--port" not in command:
        command = command.replace("kctl serve", "kctl serve --port 0")
    return re.sub(r"^pytest", f"{sys.executable} -m pytest -p no:cacheprovider", command)


def run_line(shell, line, ready, started):
    """Run a line; return its output. `kill %1; wait` ends the first of the jobs `started`."""
    status = int(found[1]) if (found := _STATUS.search(line)) else 0
    command = adapted(_STATUS.sub("", line))
    if command.startswith("pip install"):
        return ""
    if command.startswith("export KCTL_BOOTSTRAP_SERVER="):
        shell.set("KCTL_BOOTSTRAP_SERVER", ready.strip())
        return ""
    if killed := re.fullmatch(r"kill %(\d); wait", command):
        started[int(killed[1]) - 1].stop()
        return ""
    ran = shell.run(command)
    assert ran.status == status, f"{line}\n{ran.text}"
    return ran.text


def test_every_tutorial_is_run():
    assert {page.stem for page in TUTORIALS} == set(RESULTS)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_says(page):
    last = ready = ""
    started = []
    with Shell() as shell:
        for language, text in blocks(page):
            if language == "python" and "def test_" in text:
                (shell.directory / "test_orders.py").write_text(text)
            elif language == "python":
                subprocess.run([sys.executable, "-c", text], cwd=shell.directory, check=True)
            else:
                for line in text.splitlines():
                    if line.endswith(" &"):
                        started.append(shell.start(adapted(line.removesuffix(" &"))))
                        ready = shell.wait_for(_READY.search(line)[1], started[-1])
                    else:
                        last = run_line(shell, line, ready, started) or last
    assert RESULTS[page.stem] in last
