"""A producer that speaks the transactional requests itself, over a socket, in any version."""

import time

from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kctl.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kctl.protocol.messages.end_txn import EndTxnRequest
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.find_coordinator import FindCoordinatorRequest
from kctl.protocol.messages.init_producer_id import InitProducerIdRequest
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetRequest,
    ListOffsetTopic,
)
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kctl.records.builder import RecordBatchBuilder
from tests.support.broker_client import BrokerClient

WAIT_S = 120
# Errors that pass by themselves.
PASSING = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def until_settled(ask):
    """`ask` again until its error code is none that passes; the answer."""
    deadline = time.monotonic() + WAIT_S
    while (answer := ask()).error_code in PASSING:
        assert time.monotonic() < deadline, ErrorCode(answer.error_code)
        time.sleep(0.02)
    return answer


def find_coordinators(address, transactional_id, group_id):
    """Wait until both coordinators and their topics exist."""
    with BrokerClient(address) as client:
        for key_type, key in ((1, transactional_id), (0, group_id)):
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            until_settled(lambda request=request: client.ask(request))


class RawProducer:
    """One transactional producer over a connection of its own."""

    def __init__(self, address, transactional_id):
        self.address = address
        self.transactional_id = transactional_id
        self.client = BrokerClient(address)
        self._old_clients = []
        self.producer_id = self.epoch = -1
        self.sequences = {}

    def init(self, version=None, timeout_ms=60_000, *, goes_on=False):
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        if goes_on:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        answer = until_settled(lambda: self.client.ask(request, version))
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return ErrorCode(answer.error_code)

    def reconnect(self):
        """Continue over a new connection; return the old one, still open."""
        old, self.client = self.client, BrokerClient(self.address)
        self._old_clients.append(old)
        return old

    def close(self):
        for client in (self.client, *self._old_clients):
            client.close()

    def add(self, topic, *partitions, version=None, waits=True):
        request = self.add_request(topic, *partitions)
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self.client.ask(request, version)
            codes = [ErrorCode(it.error_code) for t in answer.results for it in t.results]
            if not waits or not PASSING.intersection(codes):
                return codes
            assert time.monotonic() < deadline, codes
            time.sleep(0.02)

    def add_request(self, topic, *partitions):
        return AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

    def produce(self, topic, *values, partition=0):
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(values)
        builder = RecordBatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        now_ms = int(time.time() * 1000)  # noqa: TID251 - a real client's clock
        for value in values:
            builder.append(timestamp=now_ms, key=None, value=value.encode())
        data = PartitionProduceData(partition_index=partition, records=builder.build())
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topics=[TopicProduceData(name=topic, partitions=[data])],
        )
        return ErrorCode(self.client.ask(request).responses[0].partitions[0].error_code)

    def add_offsets(self, group_id, version=None):
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        answer = until_settled(lambda: self.client.ask(request, version))
        return ErrorCode(answer.error_code)

    def commit_offset(self, group_id, topic, offset, version=None, **member):
        item = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[item])],
            **member,
        )
        answer = self.client.ask(request, version)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end_request(self, *, commit):
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    def end(self, *, commit, version=None):
        request = self.end_request(commit=commit)
        answer = until_settled(lambda: self.client.ask(request, version))
        return ErrorCode(answer.error_code)


def end_offset(client, topic, *, committed, partition=0):
    """The last stable offset, or the high watermark."""
    item = ListOffsetPartition(partition_index=partition, timestamp=-1)
    answer = client.ask(
        ListOffsetRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetTopic(name=topic, partitions=[item])],
        )
    )
    return answer.topics[0].partitions[0].offset


def wait_until_stable(client, topic, offset):
    """Until all transactions before `offset` have ended."""
    deadline = time.monotonic() + WAIT_S
    while end_offset(client, topic, committed=True) < offset:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def fetch(client, topic, *, committed, offset=0, max_wait_ms=0):
    """The partition's part of the answer, its records as bytes."""
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    return client.ask(request).responses[0].partition_responses[0]
