"""A healthy log directory of any Apache Kafka from 0.8.2 to 4.1 verifies clean, and Kafka 4.1's
internal topics read as its own kafka-dump-log prints them.

KCTL_KAFKA_VERSIONS_ROUNDS=10 fills, kills and restarts each broker more often.
"""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kctl.dump.dump import dump
from kctl.dump.kafka_format import Contents, kafka_lines
from kctl.dump.values import Decoder, DumpOptions
from kctl.runtime.real.disk import RealDisk
from kctl.verify.rules import Rule
from kctl.verify.verification import plan, verify_log_directory, verify_unit
from tests.dump.test_later_records import CONTENTS, KNOWN_TO_2_7
from tests.support import apache_kafka
from tests.support.kafka_versions import VERSIONS, fill, filled_broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DISK = RealDisk()
ROUNDS = int(os.environ.get("KCTL_KAFKA_VERSIONS_ROUNDS", "1"))
# How many brokers of a version are tried; see FilledBroker.has_given_up.
BROKERS_MAX = 3
BROKERS_AT_ONCE = 4
# Notes: the log start offset on disk may be old after kill -9; Kafka before 2.0 does not close the
# time index of a segment that it recovers.
AFTER_KILL = {Rule.LEFTOVER_FILE, Rule.EPOCH_CHECKPOINT_LATE}
AFTER_RECOVERY = {Rule.LEFTOVER_FILE, Rule.TIME_INDEX_OPEN}


def findings(directory):
    """Every finding in a log directory, notes too."""
    wanted = plan(DISK, [str(directory)], with_records=True)
    verified = [verify_unit(DISK, unit) for unit in wanted.units]
    found = [*wanted.findings, *(it for partition in verified for it in partition.findings)]
    for log_directory in wanted.log_directories:
        found += verify_log_directory(DISK, log_directory, verified)
    assert sum(partition.batches for partition in verified) > 100
    return [(it.rule, it.path, it.message) for it in found]


def compare_dumps(broker):
    """Compare the records of internal topics with what the broker's own tool prints."""
    for topic, flag, decoder in (
        ("__cluster_metadata", "--cluster-metadata-decoder", Decoder.CLUSTER_METADATA),
        ("__consumer_offsets", "--offsets-decoder", Decoder.OFFSETS),
        ("__transaction_state", "--transaction-log-decoder", Decoder.TRANSACTIONS),
    ):
        files = [it for it in sorted(broker.log_dir.glob(f"{topic}-*/*")) if is_log(it)]
        joined = ",".join(map(str, files))
        tool = apache_kafka.run_tool(
            "kafka.tools.DumpLogSegments", flag, "--files", joined, version=broker.version
        )
        options = DumpOptions(with_records=True, decoder=decoder)
        ours = "".join(kafka_lines(dump(DISK, map(str, files), options), Contents.DECODED))
        pairs = zip(CONTENTS.findall(ours), CONTENTS.findall(tool.stdout), strict=True)
        compared = [it for it in pairs if not KNOWN_TO_2_7.match(it[0][1])]
        assert compared
        assert [it[0] for it in compared] == [it[1] for it in compared]


def is_log(path):
    return path.suffix in (".log", ".checkpoint") and path.name != "leader-epoch-checkpoint"


def write(version, directory):
    """Fill the log directory of a broker; return its copy after `kill -9`, and the directory after
    a clean stop. A broker that gives up is replaced by a new one."""
    for number in range(BROKERS_MAX):
        place = directory / str(number)
        place.mkdir()
        with filled_broker(version, place) as broker:
            try:
                return write_with(broker, place)
            except Exception:
                if number + 1 == BROKERS_MAX or not broker.has_given_up:
                    raise
    raise AssertionError("the last broker returned or raised")


def write_with(broker, directory):
    """As `write`, with a broker that was just started."""
    fill(broker, 0)
    for number in range(ROUNDS):
        broker.kill()
        killed = shutil.copytree(broker.log_dir, directory / f"killed after {number}")
        broker.start()
        fill(broker, 100 * (number + 1), is_short=True)
    broker.stop()
    if broker.is_kraft:
        compare_dumps(broker)
    return killed, broker.log_dir


@pytest.fixture(scope="module")
def written(request, tmp_path_factory):
    """By version, the future of `write`; several brokers run side by side, as they mostly wait."""
    versions = [it.callspec.params["version"] for it in request.session.items if is_here(it)]
    with ThreadPoolExecutor(BROKERS_AT_ONCE) as pool:
        yield {it: pool.submit(write, it, tmp_path_factory.mktemp("kafka")) for it in versions}


def is_here(item):
    return item.path.name == Path(__file__).name


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_broker_wrote_verifies_clean_after_kill_and_after_a_clean_stop(version, written):
    killed, stopped = written[version].result()
    assert [it for it in findings(killed) if it[0] not in AFTER_KILL] == []
    assert [it for it in findings(stopped) if it[0] not in AFTER_RECOVERY] == []
