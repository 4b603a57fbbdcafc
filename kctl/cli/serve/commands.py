"""kctl serve: runs a broker until it is stopped."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kctl.cli.connect import parse_pairs
from kctl.cli.declaration.command import (
    COUNT,
    Range,
    local_command,
)
from kctl.cli.declaration.declarations import CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.output import Output
from kctl.cli.serve.development_tls import client_lines, development_tls
from kctl.cli.serve.monitoring_options import MonitoringOptions
from kctl.cli.serve.settings import (
    advertised_instead,
    given_settings,
    parse_address,
    warn_of_settings,
)
from kctl.counts import is_whole_number
from kctl.errors import KctlError, UsageError
from kctl.imports import without_searches

if TYPE_CHECKING:
    from kctl.broker.broker import Broker
    from kctl.broker.loggers import LogSettings
    from kctl.configs.broker_config import BrokerConfig
    from kctl.metrics.metrics_port import MetricsPort
    from kctl.model import Endpoint
    from kctl.protocol.acl import AclBinding

DEFAULT_DATA_DIR = "kctl-data"
DEFAULT_PORT = 9092
EMBEDDED = "none"
# As in Apache Kafka's sample server.properties, for a single node.
# Settings that name the protocols of listeners.
_PROTOCOL_SETTINGS = (
    "listeners",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
)
_SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}

DataDirOption = Annotated[
    str,
    Option("--data-dir", "-D", metavar="DIR", help="Where all data is stored."),
]
PortOption = Annotated[
    int | None,
    Option("--port", "-p", metavar="N", help="On 127.0.0.1; 0: any free port. [default: 9092]"),
    Range(0, 65535),
]
ListenerOption = Annotated[
    list[str] | None,
    Option(
        "--listener",
        "-l",
        metavar="NAME://HOST:PORT",
        help="Instead of --port, e.g. PLAINTEXT://0.0.0.0:9092; may be repeated.",
    ),
]
SettingOption = Annotated[
    list[str] | None,
    Option("--set", "-c", metavar="KEY=VALUE", help="A setting of Kafka's brokers."),
]
ConfigOption = Annotated[
    str | None,
    Option("--config", metavar="FILE", help="Apache Kafka's server.properties."),
]
SeedTopicOption = Annotated[
    list[str] | None,
    Option(
        "--seed-topic",
        "-t",
        metavar="NAME:PARTITIONS",
        help="Create it at the start unless it exists; may be repeated.",
    ),
]
BrokersOption = Annotated[
    int | None,
    Option(
        "--brokers",
        metavar="N",
        help="Run a cluster of N brokers, with consecutive ports.",
    ),
    COUNT,
]
RacksOption = Annotated[
    str | None,
    Option("--racks", metavar="A,B,...", help="With --brokers: their racks, assigned in turn."),
]
ReadyFileOption = Annotated[
    str | None,
    Option("--ready-file", metavar="FILE", help="Write the address there when ready."),
]
ZookeeperOption = Annotated[
    str | None,
    Option(
        "--zookeeper",
        metavar="HOST:PORT/CHROOT",
        help="Store metadata there; `none`: in the data directory, whatever --config says.",
    ),
]
ZookeeperPortOption = Annotated[
    str | None,
    Option(
        "--zookeeper-port",
        metavar="[HOST:]N",
        help="Serve the metadata there as a ZooKeeper, for other brokers and tools.",
    ),
]
TlsOption = Annotated[
    bool,
    Option(
        "--tls",
        help="Have clients speak TLS, with certificates for localhost that are made once, in"
        " DIR/tls. For development.",
    ),
]
UserOption = Annotated[
    list[str] | None,
    Option(
        "--user",
        metavar="NAME:PASSWORD",
        help="Have clients log in, by SASL PLAIN or SCRAM; may be repeated. For development:"
        " other users of this machine can read the command line.",
    ),
]
AclOption = Annotated[
    list[str] | None,
    Option(
        "--acl",
        metavar="ACL",
        help='Let clients do only what ACLs allow, and add one, as in "alice: Read topic:orders";'
        " may be repeated.",
    ),
]
Kafka07Option = Annotated[
    bool,
    Option(
        "--kafka-0.7",
        help="Be a broker of Kafka 0.7: its protocol, its files in DIR, its ZooKeeper layout.",
    ),
]
NoZookeeperOption = Annotated[
    bool,
    Option("--no-zookeeper", help="With --kafka-0.7: register nowhere."),
]
DurableOption = Annotated[
    bool,
    Option("--durable", help="Acknowledge records only once they are on disk (fsync each time)."),
]


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    local_command(app, "serve")(serve)


def serve(
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    port: PortOption = None,
    listener: ListenerOption = None,
    setting: SettingOption = None,
    config: ConfigOption = None,
    seed_topic: SeedTopicOption = None,
    ready_file: ReadyFileOption = None,
    zookeeper: ZookeeperOption = None,
    zookeeper_port: ZookeeperPortOption = None,
    brokers: BrokersOption = None,
    racks: RacksOption = None,
    durable: DurableOption = False,
    user: UserOption = None,
    acl: AclOption = None,
    tls: TlsOption = False,
    kafka_07: Kafka07Option = False,
    no_zookeeper: NoZookeeperOption = False,
    monitoring: MonitoringOptions = MonitoringOptions(),  # noqa: B008
) -> int:
    """Run a Kafka broker until Ctrl-C or SIGTERM; nothing else needs to be started.

    Metadata is stored in DIR/metadata, records in DIR/logs, both in Apache Kafka's formats. When it
    is ready it prints one line with its address; its log goes to standard error.
    The first Ctrl-C or SIGTERM stops it cleanly, a second one a second later at once.
    A cluster stores broker N's records in DIR/broker-N/logs; see also `kctl broker`.
    With --kafka-0.7, DIR is the log directory itself; --set and --config take 0.7's settings.

    \b
    Examples:
      kctl serve
      kctl serve --data-dir /tmp/kafka --port 0 --ready-file /tmp/kafka.addr
      kctl serve -c num.partitions=8 --seed-topic orders:12 --durable
      kctl serve --config server.properties --zookeeper localhost:2181/kafka
      kctl serve --zookeeper-port 2181
      kctl serve --listener PLAINTEXT://0.0.0.0:9092
      kctl serve --brokers 3 --racks a,b,c --seed-topic orders:12
      kctl serve --user alice:secret --user bob:secret2
      kctl serve --user alice:secret --acl "alice: Read,Write topic:*" -c super.users=User:admin
      kctl serve --tls --user alice:secret
      kctl serve --metrics-port 9404 --log-format json --slow-requests 100ms
      kctl serve --metrics-port 0.0.0.0:9404 --metrics-tls broker.pem --metrics-token-file token
      kctl serve --kafka-0.7 --data-dir old/ --zookeeper-port 2181
      kctl serve --kafka-0.7 --config server.properties
    """
    _check_data_dir(data_dir)
    if kafka_07:
        return _serve_kafka07(
            data_dir, port, listener, setting, config, ready_file, zookeeper, zookeeper_port,
            is_alone=no_zookeeper,
            others={
                "--seed-topic": seed_topic, "--brokers": brokers, "--racks": racks, "--tls": tls,
                "--durable": durable, "--user": user, "--acl": acl, **monitoring.given(),
            },
        )  # fmt: skip
    flags = _flags(setting or [], zookeeper, is_durable=durable)
    seeds = list(map(_parse_seed, seed_topic or []))
    store_listener = None if zookeeper_port is None else parse_address(zookeeper_port)
    seen = monitoring.port(), monitoring.log()
    if brokers is not None:
        _check_cluster({"--user": user, "--tls": tls, "--listener": listener, "--acl": acl})
        where = (data_dir, port, store_listener, ready_file, *seen)
        return _serve_cluster(brokers, racks, where, seeds, flags, config, is_durable=durable)
    _check_alone(racks, is_without_zookeeper=no_zookeeper)
    output = Output()
    users, acls = dict(map(_parse_user, user or [])), _parse_acls(acl or [], flags)
    _set_listeners(flags, port, listener or [], users, development_tls(data_dir) if tls else None)
    check_store_listener(store_listener, given_settings(flags, config))
    broker_config, stores = _single(flags, config, data_dir, listener or [], store_listener, output)
    return _run(broker_config, stores, seeds, ready_file, output, users, acls, seen, is_tls=tls)


def _single(
    flags: Mapping[str, str],
    properties_file: str | None,
    data_dir: str,
    listeners: Sequence[str],
    store_listener: "Endpoint | None",
    output: Output,
) -> "tuple[BrokerConfig, tuple[str | None, Endpoint | None]]":
    """Return the settings of a broker that is alone, and where its metadata is."""
    broker_config, store_directory = make_config(flags, properties_file, data_dir, listeners)
    warn_of_settings(broker_config, properties_file, output)
    _check_single(data_dir, store_directory, store_listener)
    return broker_config, (store_directory, store_listener)


def _serve_cluster(
    brokers: int,
    racks: str | None,
    where: "tuple[str, int | None, Endpoint | None, str | None, MetricsPort | None, LogSettings]",
    seeds: list[tuple[str, int]],
    flags: Mapping[str, str],
    properties_file: str | None,
    *,
    is_durable: bool,
) -> int:
    from kctl.cli.serve.cluster import ClusterOptions, serve_cluster

    data_dir, port, store_listener, ready_file, metrics, log = where
    check_store_listener(store_listener, given_settings(flags, properties_file))
    options = ClusterOptions(
        brokers=brokers,
        racks=racks.split(",") if racks else [],
        data_dir=data_dir,
        first_port=_check_port(port) if port is not None else DEFAULT_PORT,
        store=store_listener,
        seed_topics=seeds,
        ready_file=ready_file,
        is_durable=is_durable,
        metrics=metrics,
        log=log,
    )
    return serve_cluster(options, flags, properties_file, Output())


def _serve_kafka07(
    data_dir: str,
    port: int | None,
    listeners: list[str] | None,
    settings: list[str] | None,
    properties_file: str | None,
    ready_file: str | None,
    zookeeper: str | None,
    zookeeper_port: str | None,
    *,
    is_alone: bool,
    others: Mapping[str, object],
) -> int:
    """Run a broker of Kafka 0.7; UsageError for options that it does not have."""
    from kctl.cli.serve.kafka07 import Kafka07Options, serve_kafka07

    for option, value in others.items():
        if value:
            raise UsageError(f"{option} cannot be combined with --kafka-0.7")
    options = Kafka07Options(
        data_dir=None if data_dir == DEFAULT_DATA_DIR else data_dir,
        port=port,
        listeners=listeners or [],
        settings=parse_pairs(settings or [], "--set"),
        properties_file=properties_file,
        zookeeper=zookeeper,
        store_listener=None if zookeeper_port is None else parse_address(zookeeper_port),
        is_alone=is_alone,
    )
    with announced(ready_file) as announce:
        return serve_kafka07(options, announce, Output())


@contextmanager
def announced(ready_file: str | None) -> Iterator[Callable[[str], None]]:
    """Return a function that writes the address to `ready_file`, which is gone before and after."""
    path = None if ready_file is None else Path(ready_file)
    if path is not None:
        path.unlink(missing_ok=True)
    try:
        yield lambda address: None if path is None else _write_atomically(path, address)
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def _flags(settings: list[str], zookeeper: str | None, *, is_durable: bool) -> dict[str, str]:
    """Return the settings of the command line, by name."""
    flags = parse_pairs(settings, "--set")
    if is_durable:
        flags["log.flush.interval.messages"] = "1"
    if zookeeper is not None:
        flags["zookeeper.connect"] = "" if zookeeper == EMBEDDED else zookeeper
    return flags


def _check_data_dir(data_dir: str) -> None:
    """Raise UsageError for a directory that the broker would take for two."""
    if "," in data_dir:
        raise UsageError(
            f"--data-dir {data_dir}: a comma divides the directories of log.dirs",
            hint="choose a path without a comma; -c log.dirs=A,B names several directories",
        )


def _check_single(
    data_dir: str, store_directory: str | None, store_listener: "Endpoint | None"
) -> None:
    if store_listener is not None and store_directory is None:
        raise UsageError("--zookeeper-port serves the broker's own metadata, not a ZooKeeper's")
    if store_directory is not None and (Path(data_dir) / "broker-1").exists():
        raise UsageError(
            f"{data_dir} contains a cluster's data",
            hint="choose another --data-dir, or serve it with --brokers N",
        )


def make_config(
    flags: Mapping[str, str],
    properties_file: str | None,
    data_dir: str,
    listeners: Sequence[str] = (),
) -> "tuple[BrokerConfig, str | None]":
    """Return the broker's settings, and the directory of its embedded store (None: in ZooKeeper).

    `flags` take precedence over the file, and both over our defaults. `listeners` are the values of
    --listener, which are also in `flags`: if they are at all addresses, this machine's name is
    advertised. In a file such listeners are refused, as in Apache Kafka.
    """
    with without_searches():
        from kctl.configs.broker_config import BrokerConfig

    given = given_settings(flags, properties_file)
    is_embedded = not given.get("zookeeper.connect")
    advertised = advertised_instead(listeners, given)
    defaults = {"log.dirs": str(Path(data_dir) / "logs")} if "log.dir" not in given else {}
    if not {"listeners", "port", "host.name"} & given.keys():
        defaults["listeners"] = f"PLAINTEXT://127.0.0.1:{DEFAULT_PORT}"
    if advertised is not None:
        defaults["advertised.listeners"] = advertised
    if is_embedded:
        given.pop("zookeeper.connect", None)
        defaults.update(_SINGLE_NODE)
    properties = {**defaults, **given}
    if is_embedded and "broker.id" not in given and not _has_identity(properties):
        properties["broker.id"] = "0"
    settings = BrokerConfig.from_properties(properties, strict=flags)
    return settings, str(Path(data_dir) / "metadata") if is_embedded else None


def _run(
    config: "BrokerConfig",
    stores: "tuple[str | None, Endpoint | None]",
    seeds: list[tuple[str, int]],
    ready_file: str | None,
    output: Output,
    users: Mapping[str, str],
    acls: "Sequence[AclBinding]",
    seen: "tuple[MetricsPort | None, LogSettings]",
    *,
    is_tls: bool,
) -> int:
    with without_searches():
        from kctl.broker.process import run_broker

    def on_ready(broker: "Broker", announce: Callable[[str], None]) -> None:
        addresses = [f"{it.host}:{it.port}" for it in broker.advertised_endpoints()]
        announce(addresses[0])
        directories = ", ".join(config.log_dir_list)
        listener = broker.store_listener
        metadata = f"; ZooKeeper on {listener.host}:{listener.port}" if listener else ""
        output.write(f"kctl ready on {', '.join(addresses)} (logs in {directories}{metadata})\n")
        if broker.metering is not None:
            output.say(f"metrics on {broker.metering.url}")
        if not all(it.host for it in config.advertised_listener_list):
            output.say(
                "advertising this machine's name to clients;"
                " -c advertised.listeners=NAME://HOST:PORT advertises another address"
            )
        protocol = config.listener_list[0].security_protocol
        if is_tls:
            for line in client_lines(protocol, str(config.ssl_truststore_location)):
                output.say(line)
        if users:
            output.say(
                f"clients log in: security.protocol={protocol}, sasl.mechanism=PLAIN,"
                " SCRAM-SHA-256 or SCRAM-SHA-512"
            )

    with announced(ready_file) as announce:
        run_broker(
            config,
            store_directory=stores[0],
            store_listener=stores[1],
            seed_topics=seeds,
            users=users,
            acls=acls,
            metrics=seen[0],
            log=seen[1],
            on_ready=lambda broker: on_ready(broker, announce),
        )
    return DONE


def _check_alone(racks: str | None, *, is_without_zookeeper: bool) -> None:
    """Raise UsageError for options of other modes."""
    if racks is not None:
        raise UsageError("--racks goes with --brokers", hint="otherwise use -c broker.rack=NAME")
    if is_without_zookeeper:
        raise UsageError("--no-zookeeper goes with --kafka-0.7", hint="it is not needed here")


def _check_cluster(options: Mapping[str, object]) -> None:
    """Raise UsageError for options that cannot be combined with --brokers."""
    for option, value in options.items():
        if value:
            raise UsageError(f"{option} is for one broker", hint="with --brokers, give --port")


def _set_listeners(
    flags: dict[str, str],
    port: int | None,
    listeners: list[str],
    users: Mapping[str, str],
    tls: Mapping[str, str] | None,
) -> None:
    if users or tls is not None:
        _secure(flags, port, listeners, users, tls)
        return
    if port is not None and listeners:
        raise UsageError("Give --port or --listener, not both")
    if (port is not None or listeners) and "listeners" in flags:
        raise UsageError("Give the listeners once: --port, --listener or -c listeners=...")
    if port is not None:
        flags["listeners"] = f"PLAINTEXT://127.0.0.1:{_check_port(port)}"
    elif listeners:
        flags["listeners"] = ",".join(listeners)


def _secure(
    flags: dict[str, str],
    port: int | None,
    listeners: list[str],
    users: Mapping[str, str],
    tls: Mapping[str, str] | None,
) -> None:
    """Add the settings of --user and --tls to `flags`; raise UsageError if they contradict
    others."""
    from kctl.configs.sasl_settings import security_settings

    if listeners or "listeners" in flags:
        raise UsageError(
            f"{'--user' if users else '--tls'} sets up the listener",
            hint="give --port, or all listeners and users in --config",
        )
    number = DEFAULT_PORT if port is None else _check_port(port)
    for name, value in security_settings(f"127.0.0.1:{number}", users, tls).items():
        flags.setdefault(name, value)


def _parse_acls(texts: "Sequence[str]", flags: dict[str, str]) -> "list[AclBinding]":
    """Return the ACLs of --acl, and add the authorizer to `flags` if there are any; UsageError."""
    if not texts:
        return []
    from kctl.configs.authorizer_settings import with_authorizer
    from kctl.protocol.acl_text import parse_acls

    flags.update(with_authorizer(flags))
    return [binding for text in texts for binding in parse_acls(text)]


def _parse_user(text: str) -> tuple[str, str]:
    name, colon, password = text.partition(":")
    if not colon:
        raise UsageError("--user takes NAME:PASSWORD")
    return name, password


def _check_port(port: int) -> int:
    if not 0 <= port < 65536:
        raise UsageError(f"--port {port} is not a port")
    return port


def check_store_listener(listener: "Endpoint | None", given: Mapping[str, str]) -> None:
    """Raise UsageError if other machines could change users or ACLs through the metadata's port,
    which has no authentication."""
    from ipaddress import ip_address

    if listener is None or listener.host == "localhost":
        return
    try:
        if ip_address(listener.host).is_loopback:
            return
    except ValueError:
        pass  # A name, of whatever address.
    has_users = any("SASL" in given.get(name, "").upper() for name in _PROTOCOL_SETTINGS)
    if has_users or given.get("authorizer.class.name"):
        raise UsageError(
            f"--zookeeper-port {listener.host}:{listener.port} would let every machine change users"
            " and ACLs: this port has no authentication",
            hint=f"serve it on this machine only: --zookeeper-port {listener.port}",
        )


def _parse_seed(text: str) -> tuple[str, int]:
    name, colon, count = text.partition(":")
    if not name or (colon and not (is_whole_number(count) and int(count) > 0)):
        raise UsageError(f"Not a topic to seed: {text}", hint="e.g. --seed-topic orders:12")
    return name, int(count) if colon else 1


def _has_identity(properties: Mapping[str, str]) -> bool:
    """Return whether a log directory has a meta.properties, which then determines the broker id."""
    text = properties.get("log.dirs") or properties.get("log.dir", "")
    return any((Path(path.strip()) / "meta.properties").exists() for path in text.split(","))


def _write_atomically(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(f"{text}\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise KctlError(f"Cannot write --ready-file {path}: {error.strerror}") from None
