"""A ConsumerConnector in a process of its own, for tests that stop and kill it; JSON a line each
way.

The first line of stdin is {"settings": {...}, "streams": {topic: n}} or {..., "whitelist": regex,
"count": n}; "commit" and "shutdown" may follow. It prints {"message": [topic, partition, offset,
value, monotonic time, consumer id]}, {"error"}, {"committed"} and {"stopped"}.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time

from kctl.errors import KctlError
from kctl.kafka import ConsumerConnector, Whitelist
from tests.support.waiting import wait_for

SETTINGS = {
    "zookeeper.session.timeout.ms": 2000,
    "rebalance.backoff.ms": 300,
    "auto.commit.interval.ms": 300,
    "auto.offset.reset": "smallest",
    "fetch.wait.max.ms": 20,
}


class KctlConsumer:
    """One member; `events` grows as it prints."""

    def __init__(self, zookeeper, group, streams=None, *, whitelist=None, count=1, **settings):
        given = {name.replace("_", "."): value for name, value in settings.items()}
        start = {
            "settings": {"zookeeper.connect": zookeeper, "group.id": group, **SETTINGS, **given}
        }
        start |= {"streams": streams, "whitelist": whitelist, "count": count}
        self.events = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kctl_consumer"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.send(json.dumps(start))

    def _read(self):
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def send(self, line):
        """Write a line to it."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def said(self, kind):
        """The values of all events of a kind so far."""
        return [event[kind] for event in self.events if kind in event]

    def shut_down(self):
        """Leave the group."""
        self.send("shutdown")
        wait_for(lambda: self.said("stopped"), lambda: f"{self.events[-3:]}")
        self.process.wait()

    def close(self):
        """Kill it."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def _say(**line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _read_stream(connector, stream):
    while True:
        try:
            for it in stream:
                owner = connector._core.membership.rebalance.consumer_id
                value = (it.value or b"").decode()
                _say(message=[it.topic, it.partition, it.offset, value, time.monotonic(), owner])
            return
        except KctlError as error:
            _say(error=str(error))


def _main():
    start = json.loads(sys.stdin.readline())
    with ConsumerConnector(start["settings"]) as connector:
        if start["whitelist"] is not None:
            whitelist = Whitelist(start["whitelist"])
            streams = connector.create_message_streams_by_filter(whitelist, start["count"])
        else:
            made = connector.create_message_streams(start["streams"])
            streams = [it for found in made.values() for it in found]
        for it in streams:
            threading.Thread(target=_read_stream, args=(connector, it), daemon=True).start()
        for line in sys.stdin:
            if line.strip() == "commit":
                connector.commit_offsets()
                _say(committed=True)
            elif line.strip() == "shutdown":
                break
    _say(stopped=True)


if __name__ == "__main__":
    _main()
