"""Null and empty records, and nulls elsewhere: kctl answers if Apache Kafka 2.7.2 does, and closes
the connection if Apache Kafka does."""

import pytest

from kctl.protocol.api_keys import ApiKey
from tests.support.twin_requests import HIGHEST, comparable_produce, produce_request, records


@pytest.mark.parametrize("version", HIGHEST[ApiKey.PRODUCE])
@pytest.mark.parametrize("acks", [1, -1, 7])
def test_produce_without_records_closes_the_connection(twins, new_topic, version, acks):
    topic = new_topic(2)
    good = records(2 if version >= 3 else 1 if version == 2 else 0)
    for record_sets in ([None], [b""], [good[:20]], [None, good], [good, None], [good, b""]):
        assert twins.ask(produce_request(topic, *record_sets, acks=acks), version) is None
    # Nothing of those requests was appended.
    request = produce_request(topic, good)
    answer = twins.ask(request, version, but=comparable_produce)
    assert answer["responses"][0]["partitions"][0]["base_offset"] == 0
