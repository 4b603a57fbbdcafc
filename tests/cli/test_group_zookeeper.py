"""kctl group with --zookeeper: groups that keep members, owners and offsets in ZooKeeper."""

import json

import pytest

from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper_session import zookeeper_session

REGISTRATION = b'{"version":1,"subscription":{"%s":1},"pattern":"static","timestamp":"5"}'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The broker's address and the store's."""
    port = apache_kafka.free_port()
    with KctlBroker(tmp_path_factory.mktemp("broker"), "--zookeeper-port", str(port)) as broker:
        yield broker.address, f"127.0.0.1:{port}"


@pytest.fixture
def on(kctl, cluster):
    """Run a command with the broker and the store."""
    address, zookeeper = cluster
    return lambda *words: kctl(*words, "--zookeeper", zookeeper, "-b", address)


@pytest.fixture
def without_zookeeper(kctl, cluster):
    return lambda *words: kctl(*words, "-b", cluster[0])


@pytest.fixture
def store(cluster):
    with zookeeper_session(cluster[1]) as client:
        yield client


@pytest.fixture
def topic(without_zookeeper, request):
    """A topic with 10 records in each of 3 partitions."""
    name = request.node.name[:200].replace("[", ".").replace("]", "")
    assert without_zookeeper("topic", "create", name, "-p", 3, "-r", 1).status == 0
    for partition in range(3):
        assert without_zookeeper("produce", name, *"abcdefghij", "-p", partition).status == 0
    return name


@pytest.fixture
def group(store, topic):
    """A group that has committed 3, 5 and 7."""
    name = f"g-{topic}"
    put(store, name, topic, {0: 3, 1: 5, 2: 7})
    return name


def put(store, group, topic, offsets):
    for partition, offset in offsets.items():
        path = f"/consumers/{group}/offsets/{topic}/{partition}"
        store.ensure_path(path)
        store.set(path, str(offset).encode())


def offsets(store, group, topic):
    path = f"/consumers/{group}/offsets/{topic}"
    return {int(it): int(store.get(f"{path}/{it}")[0]) for it in sorted(store.get_children(path))}


def committed(without_zookeeper, group):
    found = without_zookeeper("group", "describe", group, "-o", "json")
    if found.status:
        return {}
    return {it["partition"]: it["committed_offset"] for it in found.documents[0]["partitions"]}


def register(store, group, consumer, topic, owned=()):
    """A member that owns partitions, as long as the session of `store`."""
    store.ensure_path(f"/consumers/{group}/ids")
    data = REGISTRATION % topic.encode()
    store.create(f"/consumers/{group}/ids/{consumer}", data, ephemeral=True)
    for partition in owned:
        own(store, group, topic, partition, f"{consumer}-0")


def own(store, group, topic, partition, thread):
    store.ensure_path(f"/consumers/{group}/owners/{topic}")
    path = f"/consumers/{group}/owners/{topic}/{partition}"
    store.create(path, thread.encode(), ephemeral=True)


def test_a_group_is_shown_with_its_owners_and_both_of_its_offsets(
    on, without_zookeeper, store, group, topic, tmp_path
):
    register(store, group, "c1", topic, [0, 1])
    own(store, group, topic, 2, "gone-0")
    csv = tmp_path / "offsets.csv"
    csv.write_text(f"{topic},0,4\n")
    assert without_zookeeper("group", "import-offsets", csv, "-g", group, "-y").status == 0

    [listed] = on("group", "list", group, "-o", "json").documents
    assert (listed["layout"], listed["members"], listed["offsets"]) == ("0.8", 1, 3)
    [shown] = on("group", "describe", group, "-o", "json").documents
    columns = ("zookeeper_offset", "kafka_offset", "end_offset", "lag", "owner", "owner_state")
    assert [tuple(it[name] for name in columns) for it in shown["partitions"]] == [
        (3, 4, 10, 7, "c1-0", "alive"),
        (5, None, 10, 5, "c1-0", "alive"),
        (7, None, 10, 3, "gone-0", "not registered"),
    ]
    assert shown["total_lag"] == 15
    [member] = shown["members"]
    assert (member["subscription"], len(member["assignment"])) == ({topic: 1}, 2)
    assert "c1" in on("group", "describe", group, "--members").out


def test_an_unknown_group_is_an_error(on, group):
    ran = on("group", "describe", group + "x")
    assert (ran.status, f"did you mean {group}?" in ran.err) == (1, True)
    assert on("group", "rebalance-check", group + "x").status == 1
    assert on("group", "export-offsets", group + "x").status == 1
    assert on("group", "migrate", group + "x", "--to", "kafka", "-y").status == 1


@pytest.mark.parametrize(
    "command", [["export-offsets"], ["delete", "-y"], ["migrate", "--to", "kafka", "-y"]]
)
def test_a_glob_that_matches_no_group_is_an_error(on, group, command):
    name, *options = command
    ran = on("group", name, group + "x*", *options)
    assert (ran.status, f"No group {group}x*" in ran.err) == (1, True)


def test_every_partition_must_have_an_owner_that_is_registered(on, store, group, topic):
    register(store, group, "c1", topic, [0, 1])
    ran = on("group", "rebalance-check", group, "-o", "json")
    assert ran.status == 1
    assert [it["error"] for it in ran.documents] == [None, None, "no owner"]
    own(store, group, topic, 2, "c2-0")
    ran = on("group", "rebalance-check", group, "-o", "json")
    assert [it["error"] for it in ran.documents][2] == "the owner is not registered"
    store.set(f"/consumers/{group}/owners/{topic}/2", b"c1-1")
    ran = on("group", "rebalance-check", group, "-o", "json")
    assert [it["error"] for it in ran.documents][2] == "the owner has no such stream"
    store.set(f"/consumers/{group}/owners/{topic}/2", b"c1-0")
    assert on("group", "rebalance-check", group).status == 0


def test_a_filter_selects_the_topics_that_its_members_read(on, store, group, topic):
    # `,` separates alternatives, blanks do not count, and the class is Java's.
    regex = topic[:-1] + r"\\p{Alnum}, another"
    data = b'{"version":1,"subscription":{"%s":3},"pattern":"white_list","timestamp":"5"}'
    store.ensure_path(f"/consumers/{group}/ids")
    store.create(f"/consumers/{group}/ids/c1", data % regex.encode(), ephemeral=True)
    ran = on("group", "rebalance-check", group, "-o", "json")
    assert [(it["topic"], it["error"]) for it in ran.documents] == [(topic, "no owner")] * 3


def test_offsets_move_to_kafka_and_back_again(
    on, cluster, without_zookeeper, store, group, topic, tmp_path
):
    undo = tmp_path / "undo.json"
    migrate = ("group", "migrate", group, "--to", "kafka", "--undo-file", undo)
    assert on(*migrate, "--dry-run").status == 0
    assert (undo.exists(), committed(without_zookeeper, group)) == (False, {})

    ran = on(*migrate, "-y")
    assert ran.status == 0
    (undo_line,) = [line for line in ran.err.splitlines() if "To undo it: " in line]
    assert undo_line.partition("kctl ")[2].split()[:4] == [
        "group",
        "migrate",
        "--rollback",
        str(undo),
    ]
    assert f" -b {cluster[0]} --zookeeper " in undo_line
    assert committed(without_zookeeper, group) == {0: 3, 1: 5, 2: 7}
    assert offsets(store, group, topic) == {0: 3, 1: 5, 2: 7}
    # The record of the first is not written over.
    assert on(*migrate, "-y").status == 2

    ran = on("group", "migrate", "--rollback", undo, "-y")
    assert ran.status == 0, ran.err
    assert committed(without_zookeeper, group) == {}

    assert on("group", "migrate", "--rollback", undo, "-y").status == 0
    undo.unlink()
    assert on(*migrate, "-y").status == 0
    put(store, group, topic, {0: 9, 1: 9})
    store.delete(f"/consumers/{group}/offsets/{topic}/2")
    undo = tmp_path / "undo-2.json"
    back = ("group", "migrate", group, "--to", "zookeeper", "--undo-file", undo)
    ran = on(*back, "-y", "-o", "json")
    assert [it["note"] for it in ran.documents] == ["goes back by 6", "goes back by 4", None]
    assert offsets(store, group, topic) == {0: 3, 1: 5, 2: 7}
    assert on("group", "migrate", "--rollback", undo, "-y").status == 0
    assert offsets(store, group, topic) == {0: 9, 1: 9}


def test_a_rollback_leaves_alone_what_has_changed_since(
    on, without_zookeeper, group, topic, tmp_path
):
    undo, csv = tmp_path / "undo.json", tmp_path / "offsets.csv"
    assert on("group", "migrate", group, "--to", "kafka", "--undo-file", undo, "-y").status == 0
    csv.write_text(f"{topic},1,6\n")
    assert without_zookeeper("group", "import-offsets", csv, "-g", group, "-y").status == 0
    ran = on("group", "migrate", "--rollback", undo, "-y", "-o", "json")
    assert ran.status == 1
    assert [it["status"] for it in ran.documents] == ["written", "failed", "written"]
    assert "is 6 now, not 5" in ran.documents[1]["error"]
    assert committed(without_zookeeper, group)[1] == 6


def test_a_group_with_a_live_member_is_refused_by_its_name(on, cluster, group, topic, tmp_path):
    undo = tmp_path / "undo.json"
    with zookeeper_session(cluster[1]) as other:
        register(other, group, "consumer-17", topic)
        for words in (
            ("migrate", group, "--to", "kafka", "--undo-file", undo, "-y"),
            ("delete", group, "-y"),
            ("reset-offsets", group, "-t", topic, "--to-latest", "-y"),
        ):
            ran = on("group", *words)
            assert ran.status == 1
            assert "consumer-17" in ran.err + ran.out
    assert not undo.exists()
    assert on("group", "delete", group, "-y").status == 0


def test_a_group_with_a_live_member_in_kafka_is_refused(on, store, topic, cluster, tmp_path):
    from confluent_kafka import Consumer

    group = f"live-{topic}"
    put(store, group, topic, {0: 3})
    settings = {"bootstrap.servers": cluster[0], "group.id": group, "client.id": "c1"}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        assert consumer.poll(60) is not None
        undo = tmp_path / "undo.json"
        ran = on("group", "migrate", group, "--to", "kafka", "--undo-file", undo, "-y")
        assert (ran.status, "live members in Kafka: c1-" in ran.err) == (1, True)
    finally:
        consumer.close()


def test_what_cannot_be_moved_is_reported_and_the_rest_is_moved(
    on, without_zookeeper, store, group, topic, tmp_path
):
    put(store, group, "gone", {0: 1})
    put(store, group, topic, {1: "x"})
    put(store, group, "old", {"0-1": 12345})
    undo = tmp_path / "undo.json"
    ran = on("group", "migrate", group, "--to", "kafka", "--undo-file", undo, "-y", "-o", "json")
    assert ran.status == 1
    errors = {f"{it['topic']}-{it['partition']}": it["error"] for it in ran.documents}
    assert errors == {
        f"{topic}-0": None, f"{topic}-2": None,
        f"{topic}-1": "b'x' is no offset",
        "gone-0": "the cluster has no such partition",
        "old-0-1": "a position in bytes of Kafka 0.7: only the map of a --mirror moves it",
    }  # fmt: skip
    assert committed(without_zookeeper, group) == {0: 3, 1: None, 2: 7}


def test_the_file_of_another_command_is_no_way_back(on, tmp_path):
    file = tmp_path / "file.json"
    for text in ("", "[]", '{"groups": []}', '{"groups": 5}', '{"migrated_to": "kafka"}'):
        file.write_text(text)
        assert on("group", "migrate", "--rollback", file, "-y").status == 2
    assert on("group", "migrate", "--rollback", tmp_path / "missing", "-y").status == 2


def test_offsets_are_exported_and_imported_as_lines_of_apache_kafkas_tool(
    on, without_zookeeper, store, group, topic, tmp_path
):
    file = tmp_path / "offsets.txt"
    put(store, group, "a:b", {"0-2": 5, "0-10": 6})
    text = on("group", "export-offsets", group).out
    assert text == (
        f"/consumers/{group}/offsets/a:b/0-2:5\n/consumers/{group}/offsets/a:b/0-10:6\n"
        f"/consumers/{group}/offsets/{topic}/0:3\n/consumers/{group}/offsets/{topic}/1:5\n"
        f"/consumers/{group}/offsets/{topic}/2:7\n"
    )
    file.write_text(text)
    assert on("group", "delete", group, "-y").status == 0
    assert on("group", "import-offsets", file, "-y").status == 0
    assert on("group", "export-offsets", group).out == text

    ran = on("group", "export-offsets", group, "-t", topic, "--format", "csv")
    assert ran.lines == [f"{topic},0,3", f"{topic},1,5", f"{topic},2,7"]
    ran = without_zookeeper("group", "import-offsets", file, "--format", "zk", "-y")
    assert (ran.status, "Kafka 0.7" in ran.err) == (2, True)
    assert on("group", "delete-offsets", group).status == 2


def test_a_reset_writes_to_zookeeper(on, store, group, topic):
    assert on("group", "reset-offsets", group, "-t", topic, "--to-latest", "-y").status == 0
    assert offsets(store, group, topic) == {0: 10, 1: 10, 2: 10}
    assert on("group", "reset-offsets", group, "--all-topics", "--shift-by", -4, "-y").status == 0
    assert offsets(store, group, topic) == {0: 6, 1: 6, 2: 6}


def test_a_group_of_kafka_0_7_is_shown_and_not_reset(on, store, topic):
    group = f"old-{topic}"
    put(store, group, "t", {"0-0": 5, "0-1": 6})
    store.create(f"/consumers/{group}/ids/c", b"*1*t.*", makepath=True, ephemeral=True)
    [shown] = on("group", "describe", group, "-o", "json").documents
    assert [it["partition"] for it in shown["partitions"]] == ["0-0", "0-1"]
    assert [it["pattern"] for it in shown["members"]] == ["white_list"]
    store.delete(f"/consumers/{group}/ids/c")
    ran = on("group", "reset-offsets", group, "--all-topics", "--shift-by", 1, "-y")
    assert (ran.status, "positions in bytes" in ran.err) == (2, True)


def test_zookeeper_must_be_there_and_hold_a_cluster(kctl, cluster, store, tmp_path):
    port = apache_kafka.free_port()
    words = ("group", "list", "--timeout", "500ms", "--zookeeper")
    ran = kctl(*words, f"127.0.0.1:{port}")
    assert (ran.status, "no answer from ZooKeeper" in ran.err) == (3, True)
    store.ensure_path("/empty")
    ran = kctl(*words, f"{cluster[1]}/empty")
    assert (ran.status, "No Kafka cluster" in ran.err, "chroot" in ran.err) == (2, True, True)


@pytest.mark.parametrize("words", [("group", "list"), ("reassign", "list")])
def test_a_mistyped_chroot_is_refused_and_not_created(kctl, cluster, store, words):
    ran = kctl(*words, "--zookeeper", f"{cluster[1]}/mistyped/path")
    assert (ran.status, "No /mistyped/path" in ran.err, "chroot" in ran.err) == (2, True, True)
    assert "mistyped" not in store.get_children("/")


def test_brokers_of_another_cluster_are_refused(kctl, cluster, store, tmp_path):
    store.create("/other/cluster/id", b'{"version":"1","id":"another"}', makepath=True)
    store.ensure_path("/other/consumers/g/offsets/t/0")
    words = ("group", "migrate", "g", "--to", "kafka", "--dry-run", "-b", cluster[0])
    ran = kctl(*words, "--zookeeper", f"{cluster[1]}/other")
    assert (ran.status, "belong to the cluster" in ran.err) == (2, True)


def test_an_undo_file_is_json_that_says_what_it_replaces(on, group, topic, tmp_path):
    undo = tmp_path / "undo.json"
    on("group", "migrate", group, "--to", "kafka", "--undo-file", undo, "-y")
    document = json.loads(undo.read_text())
    assert document["migrated_to"] == "kafka"
    assert document["groups"][0]["offsets"][0] == {
        "topic": topic, "partition": 0, "before": None, "after": 3,
    }  # fmt: skip


def test_consume_reads_and_commits_as_a_member(on, store, topic):
    first = on("consume", topic, "-g", "reads", "-B", "-m", 27)
    assert first.status == 0, first.err
    assert sum(offsets(store, "reads", topic).values()) == 27
    second = on("consume", topic, "-g", "reads", "-m", 3)
    assert sorted((first.out + second.out).split()) == sorted("abcdefghij" * 3)
    assert offsets(store, "reads", topic) == {0: 10, 1: 10, 2: 10}
    # The member has left: its znodes do not wait for the end of its session.
    assert store.get_children("/consumers/reads/ids") == []


def test_consume_goes_by_the_cluster_that_is_expected(on, topic):
    done = on("consume", topic, "-g", "reads", "--expect-cluster", "another", "-m", 1)
    assert done.status == 1
    assert "another" in done.err


def test_commands_without_brokers_ask_those_that_are_registered(
    kctl, cluster, store, group, topic, tmp_path
):
    on = lambda *words: kctl(*words, "--zookeeper", cluster[1])  # noqa: E731
    undo = tmp_path / "undo.json"
    ran = on("group", "migrate", group, "--to", "kafka", "--undo-file", undo, "-y")
    assert (ran.status, ran.out.count("written")) == (0, 3)
    ran = on("group", "migrate", "--rollback", undo, "-y")
    assert (ran.status, ran.out.count("written")) == (0, 3)
    ran = on("group", "reset-offsets", group, "--to-earliest", "-t", topic, "-y")
    assert (ran.status, ran.out.count("written")) == (0, 3)


def test_commands_that_need_brokers_say_that_none_is_registered(kctl, cluster, store):
    store.ensure_path("/no-brokers/consumers/g/offsets/t")
    store.create("/no-brokers/consumers/g/offsets/t/0", b"3")
    words = ["group", "reset-offsets", "g", "--to-earliest", "-t", "t", "-y"]
    ran = kctl(*words, "--zookeeper", f"{cluster[1]}/no-brokers")
    assert ran.status == 3
    assert "no broker of Kafka 0.8 or later is registered in ZooKeeper" in ran.err
