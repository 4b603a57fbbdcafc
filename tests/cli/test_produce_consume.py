"""kctl produce and kctl consume."""

import json

import pytest

from kctl.testing.kafka_broker import KafkaBroker


def test_arguments_become_records_and_come_back(on, topic):
    assert on("produce", topic, "hello", "world", "-p", 2).err == f"2 records written to {topic}\n"

    assert on("consume", topic, "--exit").lines == ["hello", "world"]


def test_where_records_went_is_printed_as_documents(on, topic):
    ran = on("produce", topic, "a", "b", "-p", 1, "-o", "ndjson")

    assert [(it["partition"], it["offset"], it["status"]) for it in ran.ndjson] == [
        (1, 0, "written"),
        (1, 1, "written"),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written_and_read(on, topic, tmp_path, codec):
    lines = [f"line {number} " + "x" * 100 for number in range(1000)]
    path = tmp_path / "lines"
    path.write_text("\n".join(lines) + "\n")

    assert on("produce", topic, "-f", path, "-z", codec, "-p", 0).status == 0

    assert on("consume", topic, "-e").lines == lines


def test_keys_headers_and_times_survive(on, topic):
    on(
        "produce", topic, "v", "-k", "k", "-H", "a=1", "-H", "a=2", "-H", "b=",
        "--timestamp", "2026-01-31T08:00:00Z",
    )  # fmt: skip

    [record] = on("consume", topic, "-e", "-o", "ndjson").ndjson
    assert record["key"] == "k"
    assert record["value"] == "v"
    assert record["timestamp"] == 1769846400000
    assert [(it["name"], it["value"]) for it in record["headers"]] == [
        ("a", "1"),
        ("a", "2"),
        ("b", ""),
    ]


def test_produce_reads_the_json_that_consume_prints(on, topic, name, tmp_path):
    on("topic", "create", f"{name}-copy", "-p", 3, "-r", 1)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\x00\n\xfe")
    on("produce", topic, "-f", binary, "-i", "whole", "-k", "bin", "-p", 1)
    on("produce", topic, "text", "-H", "h=1", "-p", 1)
    on("produce", topic, "NULL", "--null", "NULL", "-k", "gone", "-p", 1)
    original = on("consume", topic, "-e", "-o", "ndjson")
    path = tmp_path / "records"
    path.write_text(original.out)

    assert on("produce", f"{name}-copy", "-i", "ndjson", "-f", path).status == 0

    copies = on("consume", f"{name}-copy", "-e", "-o", "ndjson").ndjson
    fields = ("key", "value", "value_base64", "headers", "partition", "timestamp")
    expected = [{field: it.get(field) for field in fields} for it in original.ndjson]
    assert [{field: it.get(field) for field in fields} for it in copies] == expected
    assert expected[0]["value_base64"] == "/wAK/g=="
    assert expected[2]["value"] is None


def test_lines_are_split_into_key_and_value(on, topic, tmp_path):
    path = tmp_path / "pairs"
    path.write_bytes(b"k1:v1\r\nk2:v:2\n")

    on("produce", topic, "-f", path, "--key-separator", ":", "-p", 0)

    assert on("consume", topic, "-e", "-K").lines == ["k1\tv1", "k2\tv:2"]


def test_the_same_key_always_goes_to_the_same_partition(on, topic):
    for value in ("a", "b", "c"):
        on("produce", topic, value, "-k", "customer-7")

    records = on("consume", topic, "-e", "-o", "ndjson").ndjson
    assert len({record["partition"] for record in records}) == 1
    assert [record["value"] for record in records] == ["a", "b", "c"]


def test_a_template_shapes_the_output(on, topic):
    on("produce", topic, "v", "-k", "k", "-H", "a=1", "-p", 1, "--timestamp", "1769846400123")

    ran = on(
        "consume",
        topic,
        "-e",
        "-f",
        r"{topic}[{partition}]@{offset}\t{time} {key}={value} {headers}{{}}\n",
    )

    assert ran.out == f"{topic}[1]@0\t2026-01-31T08:00:00.123Z k=v a=1{{}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2..4", ["2", "3"]),
        ("3", ["3", "4"]),
        ("-2", ["3", "4"]),
        ("..2", ["0", "1"]),
        ("earliest..", ["0", "1", "2", "3", "4"]),
        ("latest", []),
        ("@1769846402000", ["2", "3", "4"]),
        ("@2026-01-31T08:00:01Z..@2026-01-31T08:00:03Z", ["1", "2"]),
        ("@2999-01-01", []),
    ],
)
def test_a_range_of_offsets_or_times_is_read(on, topic, tmp_path, text, expected):
    path = tmp_path / "records"
    path.write_text(
        "".join(
            json.dumps({"value": str(number), "timestamp": 1769846400000 + number * 1000}) + "\n"
            for number in range(5)
        )
    )
    on("produce", topic, "-i", "ndjson", "-f", path, "-p", 0)

    assert on("consume", topic, "-p", "0", f"--offset={text}", "-e").lines == expected


def test_the_newest_record_alone_can_be_read(on, topic):
    on("produce", topic, "old", "new", "-p", 0)

    assert on("consume", topic, "--offset", "-1", "-m", 1, "-p", 0).lines == ["new"]


def test_a_group_continues_at_its_committed_offsets(on, topic, name):
    on("produce", topic, "a", "b", "c", "-p", 0)

    assert on("consume", topic, "-g", name, "-e", "-m", 1).lines == ["a"]
    assert on("consume", topic, "-g", name, "-e").lines == ["b", "c"]
    assert on("consume", topic, "-g", name, "-e").lines == []


def test_several_topics_are_read_together(on, topic, name):
    on("topic", "create", f"{name}-2", "-p", 1, "-r", 1)
    on("produce", topic, "one")
    on("produce", f"{name}-2", "two")

    assert sorted(on("consume", topic, f"{name}-2", "-e").lines) == ["one", "two"]


@pytest.mark.parametrize("output", ["json", "yaml", "csv", "name"])
def test_records_in_every_format(on, topic, output):
    on("produce", topic, "v1", "v2", "-p", 0)

    ran = on("consume", topic, "-e", "-o", output)

    assert ran.status == 0
    if output == "json":
        assert [it["value"] for it in ran.documents] == ["v1", "v2"]
    elif output == "name":
        assert ran.lines == [f"{topic}-0@0", f"{topic}-0@1"]
    else:
        assert ran.out.count("v1") == ran.out.count("v2") == 1


def test_bytes_that_are_not_utf8_are_in_every_format(on, topic, tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\x00")
    on("produce", topic, "-i", "whole", "-f", tmp_path / "bytes", "-k", "k")

    [document] = on("consume", topic, "-e", "-o", "json").documents
    header, row = on("consume", topic, "-e", "-o", "csv").lines

    assert document["value_base64"] == "/wA="
    assert header.endswith(",key,value,headers,key_base64,value_base64")
    assert row.endswith(",k,,-,,/wA=")


def test_an_empty_topic_is_an_empty_list(on, topic):
    assert on("consume", topic, "-e", "-o", "json").documents == []


def test_an_unknown_topic_gets_a_suggestion(on, topic):
    for command in ("produce", "consume"):
        ran = on(command, topic[:-1] + "x", *(["v"] if command == "produce" else ["-e"]))

        assert ran.status == 1
        assert ran.err.startswith("error: No topic")
        assert f"did you mean {topic}?" in ran.err


def test_a_topics_name_is_quoted_in_the_hint_to_create_it(on):
    ran = on("produce", "no topic", "v")

    assert ran.status == 1
    assert ran.err.endswith("hint: create it: kctl topic create 'no topic'\n")


def test_an_unknown_partition_fails_before_anything_is_written(on, topic):
    ran = on("produce", topic, "v", "-p", 7)

    assert (ran.status, ran.err) == (1, f"error: {topic} has no partition 7, only 3\n")


def test_a_dry_run_of_produce_writes_nothing(on, topic):
    assert on("produce", topic, "v", "-n").err == f"1 record would be written to {topic}\n"

    assert on("consume", topic, "-e").lines == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"value": ', "not JSON"),
        # JSON can hold half a character, and UTF-8 cannot.
        (r'{"value": "\ud800"}', "Input is not valid text"),
        (r'{"value": {"a": "\ud800"}}', "Input is not valid text"),
        (r'{"headers": {"\ud800": "a"}}', "Input is not valid text"),
        (f'{{"timestamp": {2**63}}}', f"timestamp {2**63} has more than 64 bits"),
        (f'{{"timestamp": "{2**63}"}}', f"Not a time: {2**63}"),
    ],
)
def test_a_malformed_line_ends_the_input_after_earlier_records_are_written(
    on, topic, tmp_path, line, error
):
    path = tmp_path / "records"
    path.write_text(f'{{"value": "good"}}\n{line}\n')

    ran = on("produce", topic, "-i", "ndjson", "-f", path)

    assert ran.status == 1
    assert ran.err.startswith(f"error: Line 2 of the input: {error}")
    assert "before it: 1 record\n" in ran.err
    assert on("consume", topic, "-e").lines == ["good"]


def test_only_a_record_larger_than_max_message_bytes_fails(on, name, tmp_path):
    on("topic", "create", name, "-p", 1, "-r", 1, "-c", "max.message.bytes=1000")
    path = tmp_path / "lines"
    path.write_text("x" * 2000 + "\n")

    ran = on("produce", name, "-f", path)

    assert ran.status == 1
    assert "error: 1 of 1 record failed" in ran.err


def test_an_unknown_partition_is_an_error(on, topic):
    assert on("produce", topic, "v", "-p", 7).status == 1
    assert on("consume", topic, "-e", "-p", 7).status == 1


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_kind_of_acknowledgement(on, topic, acks):
    assert on("produce", topic, "v", "--acks", acks).status == 0

    assert on("consume", topic, "-O", "earliest", "-m", 1).lines == ["v"]


@pytest.mark.parametrize(
    "argv",
    [
        ("--from-beginning", "--offset", "3"),
        ("--group", "g", "--offset", "3"),
        ("--format", "{value}", "-o", "json"),
        ("--format", "{nonsense}"),
        ("--offset", "@yesterday"),
        ("-p", "one"),
        ("-m", "0"),
    ],
)
def test_contradictory_options_are_invalid_usage(on, topic, argv):
    ran = on("consume", topic, "-e", *argv)

    assert ran.status == 2
    assert ran.err.startswith("error: ")


def test_a_topic_that_a_broker_learns_of_later_is_found(kctl):
    with KafkaBroker(topics=["new:1"]) as broker:
        where = ["-b", broker.bootstrap_servers]
        with broker.inject_error("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", times=None) as unknown:
            ran = kctl("produce", "new", "x", *where)
            assert ran.status == 1
            assert "did you mean new?" not in ran.err
            assert unknown.hits > 2
        with broker.inject_error("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", times=3):
            ran = kctl("produce", "new", "x", *where)
        assert ran.status == 0, ran.err
        assert len(broker.records("new")) == 1
