"""A member of a group of Kafka 0.7: samsa 0.3.11, which needs Python 2.7.

Arguments: ZOOKEEPER GROUP TOPIC. It prints {"started": id}, {"message": [topic, null, null, value,
id]} and, after a line on stdin, {"stopped": true}; samsa says nothing of partitions and offsets.
"""

import json
import sys
import threading

from kazoo.client import KazooClient
from samsa.cluster import Cluster

SESSION_S = 2
POLL_S = 0.2


def say(**line):
    """Print a line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(zookeeper, group, topic):
    """Read until a line comes."""
    client = KazooClient(zookeeper, timeout=SESSION_S)
    client.start()
    # What it adds to its pause whenever there is nothing to read, in seconds.
    consumer = Cluster(client).topics[topic].subscribe(group, backoff_increment=0.05)
    say(started=consumer.id)
    is_over = threading.Event()

    def wait_for_end():
        sys.stdin.readline()
        is_over.set()

    waiter = threading.Thread(target=wait_for_end)
    waiter.daemon = True
    waiter.start()
    while not is_over.is_set():
        message = consumer.next_message(timeout=POLL_S)
        if message is None:
            # It has no commits of its own.
            consumer.commit_offsets()
        else:
            say(message=[topic, None, None, message, consumer.id])
    consumer.stop_partitions()
    client.stop()
    say(stopped=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
