"""SourceCluster: how a broker reaches the cluster that its links follow, and who leads there.

Its settings are those of a client, in the file NAME.properties of the directory that
mirror.sources.dir names. The file is read each time a connection is opened, so that addresses and
passwords change without a restart.

Kafka 2.7: org.apache.kafka.clients.{Metadata, CommonClientConfigs}
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

from kctl.broker.links.link_fetcher import earliest_request
from kctl.client.bootstrap_servers import parse_servers
from kctl.client.broker_channel import BrokerChannel
from kctl.client.security import ClientSecurity
from kctl.configs.broker_config import parse_properties
from kctl.errors import KctlError, UnreachableError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.constants import TOPIC_RESOURCE
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kctl.protocol.messages.list_offsets import ListOffsetResponse
from kctl.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import done_in_turns
from kctl.work import Work, nested_parts

REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 5_000
# The source of a config that a topic overrides, in DescribeConfigs.
OF_TOPIC = 1
BOOTSTRAP_SERVERS = "bootstrap.servers"
CLIENT_ID = "kctl-link"
# Partitions of the source whose leaders are taken from its metadata, per turn.
PARTITIONS_PER_TURN = 2_000


@dataclass(frozen=True, slots=True)
class SourceLeader:
    """The broker that leads a partition at the source."""

    broker_id: int
    leader_epoch: int


@dataclass(slots=True)
class SourceView:
    """What the source's metadata says of the linked topics."""

    cluster_id: str | None = None
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    partition_counts: dict[str, int] = field(default_factory=dict)
    leaders: dict[TopicPartition, SourceLeader] = field(default_factory=dict)
    # Topic -> the error code in its place.
    errors: dict[str, int] = field(default_factory=dict)


class SourceCluster:
    """One source, by its name."""

    def __init__(self, runtime: Runtime, name: str, directory: str | None) -> None:
        self.name = name
        self.view = SourceView()
        # Why the source cannot be used; None: the last refresh succeeded.
        self.problem: str | None = "it has not been asked yet"
        self._runtime = runtime
        self._directory = directory
        self._channel: BrokerChannel | None = None
        self._is_closed = False
        # The manager's: whether a task of it asks this source, whether the source is to be asked
        # again after that, and when the settings of topics are read next.
        self.is_tended = False
        self.is_wanted_again = False
        self.settings_due_ms = 0

    def close(self) -> None:
        """Close the connection that metadata comes over, and open no other one for it."""
        self._is_closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def settings(self) -> dict[str, str]:
        """Read the source's settings; raise KctlError."""
        if self._directory is None:
            raise UsageError("mirror.sources.dir is not set on this broker")
        path = f"{self._directory}/{self.name}.properties"
        disk = self._runtime.disk
        if not disk.exists(path):
            raise UsageError(f"there is no {path}")
        given = parse_properties(disk.read_file(path).decode(errors="replace"))
        if BOOTSTRAP_SERVERS not in given:
            raise UsageError(f"{path} has no {BOOTSTRAP_SERVERS}")
        return given

    async def refresh(self, topics: Sequence[str]) -> None:
        """Ask the source who leads `topics`; set `view`, or `problem`."""
        try:
            channel = await self._any_channel()
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=topic) for topic in topics],
                allow_auto_topic_creation=False,
            )
            response = await channel.send_in_turns(request)
            self.view = await done_in_turns(self._runtime.scheduler, _view(response))
            self.problem = None
        except KctlError as error:
            self._disconnect()
            self.problem = str(error)

    async def topic_overrides(
        self, topics: Sequence[str]
    ) -> dict[str, dict[str, str] | UnreachableError]:
        """Return the configs that each of the source's topics overrides, or why they cannot be
        read; raise KctlError if none can."""
        channel = await self._any_channel()
        resources = [
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
            )
            for topic in topics
        ]
        response: DescribeConfigsResponse = await channel.send_in_turns(
            DescribeConfigsRequest(resources=resources)
        )
        return {result.resource_name: _overrides(result) for result in response.results}

    async def start_offset(self, tp: TopicPartition, leader: SourceLeader) -> int:
        """Return the log start offset of a partition at the source; raise KctlError."""
        channel = await self.channel_to(leader.broker_id)
        try:
            response: ListOffsetResponse = await channel.send(
                earliest_request(tp, leader.leader_epoch)
            )
        finally:
            channel.close()
        [topic] = response.topics
        [answer] = topic.partitions
        if answer.error_code:
            raise UnreachableError(f"the start of {tp}: {ErrorCode(answer.error_code).name}")
        return answer.offset

    async def channel_to(self, broker_id: int) -> BrokerChannel:
        """Return a new connection to a broker of the source; raise KctlError."""
        address = self.view.addresses.get(broker_id)
        if address is None:
            raise UnreachableError(f"broker {broker_id} of {self.name} is not known to be alive")
        return await self._connected(*address, ClientSecurity.of(_security(self.settings())))

    async def _any_channel(self) -> BrokerChannel:
        if self._channel is not None and self._channel.is_usable:
            return self._channel
        settings = self.settings()
        security = ClientSecurity.of(_security(settings))
        last: KctlError = UnreachableError("no address")
        bootstrap = parse_servers(settings[BOOTSTRAP_SERVERS])
        for address in dict.fromkeys([*bootstrap, *self.view.addresses.values()]):
            try:
                self._channel = await self._connected(*address, security)
            except KctlError as error:
                last = error
            else:
                if not self._is_closed:
                    return self._channel
                self._disconnect()
                last = UnreachableError(f"no link follows {self.name} now")
        raise last

    async def _connected(self, host: str, port: int, security: ClientSecurity) -> BrokerChannel:
        channel = BrokerChannel(
            self._runtime, host, port, client_id=CLIENT_ID,
            request_timeout_ms=REQUEST_TIMEOUT_MS, security=security,
        )  # fmt: skip
        await channel.connect(CONNECT_TIMEOUT_MS)
        return channel


def _security(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name != BOOTSTRAP_SERVERS}


def _overrides(result: DescribeConfigsResult) -> dict[str, str] | UnreachableError:
    if result.error_code:
        name = ErrorCode(result.error_code).name
        return UnreachableError(f"the configs of {result.resource_name}: {name}")
    return {
        entry.name: entry.value
        for entry in result.configs
        if entry.config_source == OF_TOPIC and entry.value is not None
    }


def _view(response: MetadataResponse) -> Work[SourceView]:
    found = SourceView(
        response.cluster_id,
        {broker.node_id: (broker.host, broker.port) for broker in response.brokers},
    )
    for topic in response.topics:
        if topic.error_code and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            found.errors[topic.name] = topic.error_code
        else:
            found.partition_counts[topic.name] = len(topic.partitions)
    led = ((it.name, it.partitions) for it in response.topics if it.name not in found.errors)
    for part in nested_parts(led, PARTITIONS_PER_TURN):
        if part is None:
            yield
        else:
            _add_leaders(found, *part)
    return found


def _add_leaders(
    found: SourceView, topic: str, partitions: Sequence[MetadataResponsePartition]
) -> None:
    for partition in partitions:
        if partition.leader_id >= 0 and partition.leader_epoch >= 0:
            tp = TopicPartition(topic, partition.partition_index)
            found.leaders[tp] = SourceLeader(partition.leader_id, partition.leader_epoch)
