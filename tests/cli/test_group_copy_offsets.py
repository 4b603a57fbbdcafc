"""kctl group: offsets copied to and from files, and between groups."""

import pytest

from tests.support import apache_kafka


@pytest.fixture
def group(on, topic, name):
    """A group that has committed offset 2 of 3 in partition 0, and 0 in the empty ones."""
    on("produce", topic, "a", "b", "c", "-p", 0)
    assert on("group", "reset-offsets", name, "-t", topic, "--to-earliest", "-y").status == 0
    assert (
        on("group", "reset-offsets", name, "-t", f"{topic}:0", "--to-offset", 2, "-y").status == 0
    )
    return name


def committed(on, group):
    """Return the committed offsets by partition."""
    [document] = on("group", "describe", group, "-o", "json").documents
    found = {it["partition"]: it["committed_offset"] for it in document["partitions"]}
    return {partition: offset for partition, offset in found.items() if offset is not None}


def test_exported_offsets_are_imported(on, group, topic, tmp_path):
    exported = on("group", "export-offsets", group)
    path = tmp_path / "offsets.csv"
    path.write_text(exported.out)
    on("group", "reset-offsets", group, "-t", topic, "--to-latest", "-y")

    assert exported.lines == [f"{topic},0,2", f"{topic},1,0", f"{topic},2,0"]
    dry = on("group", "import-offsets", path, "-g", group, "-n", "-o", "json")
    assert [it["new_offset"] for it in dry.documents] == [2, 0, 0]
    assert committed(on, group) == {0: 3, 1: 0, 2: 0}
    assert on("group", "import-offsets", path, "-g", group).status == 2, "not without --yes"
    ran = on("group", "import-offsets", path, "-g", group, "-y", "-o", "json")
    assert ran.status == 0, ran.err
    assert {it["status"] for it in ran.documents} == {"reset"}
    assert committed(on, group) == {0: 2, 1: 0, 2: 0}


def test_many_groups_are_exported_and_imported_at_once(on, group, topic, tmp_path):
    on("group", "clone-offsets", group, f"{group}-2", "-y")
    exported = on("group", "export-offsets", f"{group}*", "-t", f"{topic}:0")
    path = tmp_path / "offsets.csv"
    path.write_text(exported.out)
    for each in (group, f"{group}-2"):
        assert on("group", "delete", each, "-y").status == 0

    assert exported.lines == [f"{group},{topic},0,2", f"{group}-2,{topic},0,2"]
    ran = on("group", "import-offsets", path, "-y", "-o", "json")
    assert [(it["group"], it["status"]) for it in ran.documents] == [
        (group, "reset"),
        (f"{group}-2", "reset"),
    ]
    assert committed(on, group) == committed(on, f"{group}-2") == {0: 2}


def test_a_group_is_reset_to_its_offsets_in_a_file(on, group, topic, tmp_path):
    path = tmp_path / "offsets.csv"
    path.write_text(f"{group},{topic},0,1\n{group},{topic},1,99\nanother,{topic},0,3\n")
    ran = on("group", "reset-offsets", group, "--from-file", path, "-y", "-o", "json")

    assert ran.status == 0, ran.err
    assert [(it["partition"], it["new_offset"]) for it in ran.documents] == [(0, 1), (1, 0)]
    assert ran.documents[1]["note"] == "99 is after the end"
    assert committed(on, group) == {0: 1, 1: 0, 2: 0}


def test_only_unknown_partitions_of_a_file_fail(on, group, topic, tmp_path):
    path = tmp_path / "offsets.csv"
    path.write_text(f"{topic},0,1\n{topic},7,0\n{topic}-gone,0,0\n")
    ran = on("group", "reset-offsets", group, "--from-file", path, "-y", "-o", "json")

    assert ran.status == 1
    found = {(it["topic"], it["partition"]): it["status"] for it in ran.documents}
    assert found == {(topic, 0): "reset", (topic, 7): "failed", (f"{topic}-gone", 0): "failed"}
    assert committed(on, group)[0] == 1


def test_malformed_files_change_nothing(on, group, topic, tmp_path):
    path = tmp_path / "offsets.csv"
    path.write_text(f"{topic},0,1\n{topic},one,1\n")
    ran = on("group", "reset-offsets", group, "--from-file", path, "-y")
    assert ran.status == 2
    assert f"{path}, line 2: 'one' is not a valid partition" in ran.err
    path.write_text(f"another,{topic},0,1\n")
    assert on("group", "reset-offsets", group, "--from-file", path, "-y").status == 2
    assert on("group", "reset-offsets", group, "--from-file", path, "-t", topic, "-y").status == 2
    assert on("group", "import-offsets", tmp_path / "none", "-y").status == 2
    path.write_text(f"{topic},0,1\n")
    assert on("group", "import-offsets", path, "-y").status == 2, "whose are they?"
    assert committed(on, group)[0] == 2


def test_offsets_are_cloned_to_another_group(on, group, topic):
    clone = f"{group}-clone"
    dry = on("group", "clone-offsets", group, clone, "-t", f"{topic}:0,1", "-n", "-o", "json")
    assert [it["new_offset"] for it in dry.documents] == [2, 0]
    assert on("group", "list", clone, "-o", "name").lines == []
    assert on("group", "clone-offsets", group, clone).status == 2, "not without --yes"
    assert on("group", "clone-offsets", group, clone, "-y").status == 0
    assert on("consume", topic, "-g", clone, "-e").lines == ["c"]
    assert committed(on, group)[0] == 2


def test_offsets_that_cannot_be_cloned_are_reported(on, group, topic, name):
    gone = on("group", "export-offsets", f"{group}x")
    assert (gone.status, gone.out) == (1, "")
    assert f"hint: did you mean {group}?" in gone.err
    assert on("group", "export-offsets", "no-such-*").status == 1
    assert on("group", "export-offsets", group, "-t", f"{topic}x").status == 1
    assert on("group", "clone-offsets", f"{group}x", f"{group}-y", "-y").status == 1
    assert on("group", "clone-offsets", group, group, "-y").status == 2


@pytest.mark.kafka
def test_apache_kafkas_tool_reads_and_writes_the_same_files(on, address, group, topic, tmp_path):
    tool = ["kafka.admin.ConsumerGroupCommand", "--bootstrap-server", address, "--group", group]
    reset = [*tool, "--reset-offsets", "--topic", f"{topic}:0"]
    theirs = apache_kafka.run_tool(*reset, "--to-current", "--export", "--dry-run").stdout.strip()
    assert theirs == on("group", "export-offsets", group, "-t", f"{topic}:0").out.strip()
    path = tmp_path / "offsets.csv"
    path.write_text(f"{topic},0,1\n")
    apache_kafka.run_tool(*tool, "--reset-offsets", "--from-file", path, "--execute")
    assert committed(on, group)[0] == 1
