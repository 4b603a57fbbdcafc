"""The broker of Kafka 0.7 (`kctl serve --kafka-0.7`): byte offsets, `.kafka` files, no replicas."""

from kctl.protocol.kafka07 import Request07 as Request07
from kctl.store.broker07_znodes import Broker07 as Broker07
