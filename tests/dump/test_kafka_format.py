"""The text of kafka-dump-log 2.7.2, byte for byte, for every file of the golden directories."""

import pytest

from kctl.dump.dump import dump_file
from kctl.dump.kafka_format import Contents, java_text, kafka_lines
from kctl.dump.scala_order import in_hash_order, topic_partition_hash
from kctl.dump.values import Decoder, DumpDamage, DumpOptions
from kctl.runtime.real.disk import RealDisk
from tests.support.golden import golden_files

# Padded indexes of empty logs: the original ends in an exception there.
EXCEPTION = "EXCEPTION"


def partitions(kind):
    names = golden_files(f"logs/{kind}.tar.xz")
    return sorted({(kind, n.split("/")[1]) for n in names if n.startswith(f"dump-{kind}/")})


def decoder_of(topic_partition):
    if topic_partition.startswith("__consumer_offsets"):
        return Decoder.OFFSETS
    if topic_partition.startswith("__transaction_state"):
        return Decoder.TRANSACTIONS
    return Decoder.NONE


def kafka_text(path, decoder, *, is_shallow):
    options = DumpOptions(with_records=not is_shallow, decoder=decoder)
    items = list(dump_file(RealDisk(), str(path), options))
    assert not [item for item in items if isinstance(item, DumpDamage)]
    contents = Contents.AS_TEXT if decoder is Decoder.NONE else Contents.DECODED
    return "".join(kafka_lines(items, Contents.NOTHING if is_shallow else contents))


@pytest.mark.parametrize(("kind", "partition"), partitions("clean") + partitions("unclean"))
def test_every_file_of_the_partition_reads_as_kafka_prints_it(golden_logs, kind, partition):
    texts = sorted((golden_logs / f"dump-{kind}" / partition).glob("*.txt"))
    compared = 0
    for text in texts:
        expected = text.read_bytes().decode()
        if EXCEPTION in expected:
            continue
        is_shallow = text.name.endswith(".shallow.txt")
        name = text.name.removesuffix(".shallow.txt" if is_shallow else ".txt")
        path = golden_logs / f"logs-{kind}" / partition / name
        printed = kafka_text(path, decoder_of(partition), is_shallow=is_shallow)
        # The original ran in another directory, so its paths differ.
        assert printed.replace(str(golden_logs) + "/", "") == expected, text.name
        compared += 1
    assert compared


def test_java_replaces_half_a_surrogate_pair_once():
    assert java_text(b"a\xed\xa0\x80b") == "a\ufffdb"
    assert java_text(b"\xed\xa0") == "\ufffd"
    assert java_text(b"\xed\xa0x") == "\ufffdx"
    assert java_text(b"\xe0\x80") == "\ufffd\ufffd"
    assert java_text("ключ".encode()) == "ключ"


def test_hash_codes_are_those_of_java():
    assert topic_partition_hash("hello", 0) == 31 * 31 + 99162322
    assert topic_partition_hash("", 0) == 31 * 31


def test_hash_order_grows_its_table_and_breaks_ties_by_hash():
    assert in_hash_order([3, 1, 2], lambda n: n) == [1, 2, 3]
    # 16 shares a place with 0 while the table has 16 places.
    assert in_hash_order([16, 1, 0], lambda n: n) == [0, 16, 1]
    many = [*range(12), 16]
    assert in_hash_order(reversed(many), lambda n: n) == many
