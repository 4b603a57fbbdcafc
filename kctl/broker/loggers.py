"""The loggers of a broker, under Apache Kafka's names, and alterations of their levels.

Kafka 2.7: kafka.utils.Log4jController, kafka.server.AdminManager (`alterLogLevelConfigs`); KIP-412
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

from kctl.broker.config.config_changes import (
    AlterOperation,
    ConfigChange,
    check_changes,
    unknown_operation,
)
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.log_levels import ROOT, LogLevel, LogLevels

SERVER = "kafka.server.KafkaServer"
REPLICAS = "kafka.server.ReplicaManager"
CONTROLLER = "kafka.controller.KafkaController"
STATE_CHANGES = "state.change.logger"
AUTHORIZER = "kafka.authorizer.logger"
REQUESTS = "kafka.request.logger"
NETWORK = "kafka.network.SocketServer"
LOGS = "kafka.log.LogManager"
GROUPS = "kafka.coordinator.group.GroupCoordinator"
TRANSACTIONS = "kafka.coordinator.transaction.TransactionCoordinator"

# The other names of Apache Kafka's log4j.properties. No line of kctl is theirs, but tools that set
# their levels work.
OTHERS = (
    "kafka.log.LogCleaner", "kafka.network.RequestChannel$", "kafka.server.KafkaApis",
    "org.apache.kafka", "org.apache.zookeeper",
)  # fmt: skip

NAMES = (
    "kafka", "kafka.server", SERVER, REPLICAS, "kafka.controller", CONTROLLER, STATE_CHANGES,
    AUTHORIZER, REQUESTS, "kafka.network", NETWORK, "kafka.log", LOGS, "kafka.coordinator", GROUPS,
    TRANSACTIONS, *OTHERS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What and where a broker logs."""

    # By logger.
    levels: Mapping[str, LogLevel] = field(default_factory=dict)
    as_json: bool = False
    # None: standard error.
    path: str | None = None
    # The bytes at which the file is moved to NAME.1 and begun again; None: never.
    size_max: int | None = None
    # None: slow requests are not logged.
    slow_request_ms: int | None = None


def broker_levels(given: Mapping[str, LogLevel] | None = None) -> LogLevels:
    """Return the levels of a broker at its start. As in Apache Kafka's log4j.properties, a root at
    DEBUG alone does not log every request."""
    levels = LogLevels(NAMES)
    levels.change({REQUESTS: LogLevel.WARN, **(given or {})})
    return levels


def altered(levels: LogLevels, changes: Sequence[ConfigChange]) -> Mapping[str, LogLevel | None]:
    """Return the levels that IncrementalAlterConfigs asks for; None removes a level.

    Raise ApiError, and UsageError for what Kafka calls an invalid config value.
    """
    check_changes(changes)
    result: dict[str, LogLevel | None] = {}
    for name, operation, value in changes:
        if operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            verb = AlterOperation(operation).name
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{verb} operation is not allowed for the BROKER_LOGGER resource",
            )
        if operation not in (AlterOperation.SET, AlterOperation.DELETE):
            raise unknown_operation()
        if name not in levels:
            raise UsageError(f"Logger {name} does not exist!")
        if operation == AlterOperation.DELETE:
            if name == ROOT:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Removing the log level of the {ROOT} logger is not allowed",
                )
            result[name] = None
            continue
        # Kafka is exact about case.
        if value is None or value not in LogLevel.__members__:
            raise UsageError(
                f"Cannot set the log level of {name} to {value} as it is not a supported log level."
                f" Valid log levels are {_VALID}"
            )
        result[name] = LogLevel[value]
    return result


# In the order of Java's HashSet.
_VALID = "TRACE, ERROR, INFO, FATAL, DEBUG, WARN"
