"""What a query names and the cluster does not have is an error of the data, not of the options."""

import pytest

from kctl.errors import NotFoundError
from kctl.export.spark.options import SourceOptions
from kctl.export.spark.places import _chosen
from kctl.model import TopicPartition

KNOWN = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("users", 0)]


def options(**named):
    return SourceOptions({"kafka.bootstrap.servers": "localhost:9092", **named})


def test_partitions_of_named_topics_are_chosen():
    assert _chosen(options(subscribe="users"), KNOWN) == KNOWN[2:]
    assert _chosen(options(assign='{"orders": [1]}'), KNOWN) == KNOWN[1:2]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"subscribe": "order"}, "No topic order"),
        ({"assign": '{"orders": [0, 7]}'}, "orders-7 does not exist"),
    ],
)
def test_a_topic_or_partition_that_does_not_exist_is_not_found(named, message):
    with pytest.raises(NotFoundError, match=message):
        _chosen(options(**named), KNOWN)
