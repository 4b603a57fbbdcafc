"""A kctl command on a terminal of its own."""

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios

from tests.support.waiting import wait_for

HEIGHT = 24


class Terminal:
    """A process of kctl whose input and output are a terminal of so many columns."""

    def __init__(self, *arguments, width=80, **environ):
        self.ours, self.theirs = os.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        self.text = ""
        # The terminal is that of its session, so that it goes with it.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kctl", *map(str, arguments)],
            stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, start_new_session=True,
            env={**os.environ, "PYTHONIOENCODING": "utf-8", **environ},
        )  # fmt: skip

    def read(self):
        while select.select([self.ours], [], [], 0)[0]:
            self.text += os.read(self.ours, 65536).decode("utf-8", "replace")
        return self.text

    def wait_for(self, text):
        wait_for(lambda: text in self.read(), lambda: self.text[-3000:])

    def press(self, keys):
        os.write(self.ours, keys.encode())

    def end(self):
        status = self.process.wait(60)
        text = self.read()
        after = termios.tcgetattr(self.theirs)
        os.close(self.ours)
        os.close(self.theirs)
        return status, text, after
