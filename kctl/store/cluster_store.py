"""ClusterStore: typed reads and writes of a Kafka cluster over any MetadataStore.

Errors of a method: NoNodeError and NodeExistsError where its docstring says so; SessionExpiredError
always; ControllerMovedError where it takes `controller_epoch_zk_version` (ANY_VERSION there: not
fenced). After a lost connection a method waits and repeats its call, so a create may find that it
already succeeded: where that matters the method checks who created the znode. Over the embedded
store every await returns at once.

Kafka 2.7: kafka.zk.KafkaZkClient.
"""

from kctl.store.acl_registry import AclRegistry
from kctl.store.announcements import Announcements
from kctl.store.broker_registry import BrokerRegistry
from kctl.store.config_registry import ConfigRegistry
from kctl.store.notifications import Notifications
from kctl.store.token_registry import TokenRegistry
from kctl.store.topic_registry import TopicRegistry


class ClusterStore(
    BrokerRegistry,
    TopicRegistry,
    ConfigRegistry,
    AclRegistry,
    TokenRegistry,
    Announcements,
    Notifications,
):
    """The parts of KafkaZkClient, one class each, over one store and one session."""
