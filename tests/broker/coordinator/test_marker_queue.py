"""Markers of a transaction with very many partitions go out in several requests."""

from types import SimpleNamespace

import pytest

from kctl.broker.coordinator.transaction import marker_queue
from kctl.broker.coordinator.transaction.marker_queue import MarkerQueue, Parcel, request_of
from kctl.model import TopicPartition

MAX = 10


@pytest.mark.parametrize("count", [1, MAX, 3 * MAX + 5])
def test_no_request_has_more_partitions_than_the_limit(monkeypatch, count):
    monkeypatch.setattr(marker_queue, "PARTITIONS_PER_REQUEST_MAX", MAX)
    markers = SimpleNamespace(producer_id=1, producer_epoch=0, is_commit=True, coordinator_epoch=0)
    partitions = tuple(TopicPartition("t", number) for number in range(count))
    queue = MarkerQueue(lambda _: 3)
    routed = queue.route([Parcel("owner", markers, partitions), Parcel("other", markers, ())])
    assert routed.brokers == [3]
    numbers = []
    while parcels := queue.take(3):
        request = request_of(parcels)
        sent = [it.partition_indexes for marker in request.markers for it in marker.topics]
        # No request names a transaction twice.
        assert len(sent) == 1
        assert len(sent[0]) <= MAX
        numbers += sent[0]
    assert numbers == list(range(count))
