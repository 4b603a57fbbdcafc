"""ClusterStore: typed reads and writes of a Kafka cluster over any MetadataStore.

What a method may be told of failures: NoNodeError and NodeExistsError where its words say so;
SessionExpiredError always; ControllerMovedError where it takes `controller_epoch_zk_version`
(ANY_VERSION there: not fenced). Lost connections are waited out and calls made again, so a create
may find its own work: where that matters the method looks who did it.
Over the embedded store every await returns at once.

Kafka 2.7: kafka.zk.KafkaZkClient.
"""

from kctl.store.broker_registry import BrokerRegistry
from kctl.store.config_registry import ConfigRegistry
from kctl.store.notifications import Notifications
from kctl.store.topic_registry import TopicRegistry


class ClusterStore(BrokerRegistry, TopicRegistry, ConfigRegistry, Notifications):
    """The chapters of KafkaZkClient, one class each, over one store and one session."""
