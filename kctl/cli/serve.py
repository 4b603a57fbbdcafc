"""kctl serve: run a broker until it is asked to stop."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.cli.command import local_command
from kctl.cli.connect import parse_pairs
from kctl.cli.failures import DONE
from kctl.cli.output import Output
from kctl.cli.text_files import read_text
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.broker.broker import Broker
    from kctl.broker.config import BrokerConfig
    from kctl.model import Endpoint

DEFAULT_DATA_DIR = "kctl-data"
DEFAULT_PORT = 9092
EMBEDDED = "none"
# What Apache Kafka's own sample server.properties says for a single node.
_SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}

DataDirOption = Annotated[
    str,
    typer.Option("--data-dir", "-D", metavar="DIR", help="Where everything is kept."),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--port", "-p", metavar="N", help="On 127.0.0.1; 0: any free port. [default: 9092]"
    ),
]
ListenerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--listener",
        "-l",
        metavar="NAME://HOST:PORT",
        help="Instead of --port, e.g. PLAINTEXT://0.0.0.0:9092; may be repeated.",
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-c", metavar="KEY=VALUE", help="A setting of Kafka's brokers."),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="Apache Kafka's server.properties."),
]
SeedTopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--seed-topic",
        "-t",
        metavar="NAME:PARTITIONS",
        help="Create it at the start, if it is not there; may be repeated.",
    ),
]
BrokersOption = Annotated[
    int | None,
    typer.Option(
        "--brokers",
        metavar="N",
        help="A cluster of N, each a process with a directory and the next port.",
    ),
]
RacksOption = Annotated[
    str | None,
    typer.Option("--racks", metavar="A,B,...", help="With --brokers: their racks, in turn."),
]
ReadyFileOption = Annotated[
    str | None,
    typer.Option("--ready-file", metavar="FILE", help="Write the address there when ready."),
]
ZookeeperOption = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT/CHROOT",
        help="Keep metadata there; `none`: in the data directory, whatever --config says.",
    ),
]
ZookeeperPortOption = Annotated[
    str | None,
    typer.Option(
        "--zookeeper-port",
        metavar="[HOST:]N",
        help="Let other brokers and tools use the metadata as if they were a ZooKeeper there.",
    ),
]
DurableOption = Annotated[
    bool,
    typer.Option(
        "--durable", help="Records are on disk before they are acknowledged (fsync each time)."
    ),
]


def register(app: typer.Typer) -> None:
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
) -> int:
    """Run a Kafka broker until Ctrl-C or SIGTERM; nothing else needs to be started.

    Metadata are kept in DIR/metadata, records in DIR/logs, both in Apache Kafka's formats. When it
    is ready it prints one line with its address; its log goes to standard error.
    A cluster of several keeps broker N's records in DIR/broker-N/logs; see also `kctl broker`.

    \b
    Examples:
      kctl serve
      kctl serve --data-dir /tmp/kafka --port 0 --ready-file /tmp/kafka.addr
      kctl serve -c num.partitions=8 --seed-topic orders:12 --durable
      kctl serve --config server.properties --zookeeper localhost:2181/kafka
      kctl serve --zookeeper-port 2181
      kctl serve --brokers 3 --racks a,b,c --seed-topic orders:12
    """
    flags = parse_pairs(setting or [], "--set")
    if durable:
        flags["log.flush.interval.messages"] = "1"
    if zookeeper is not None:
        flags["zookeeper.connect"] = "" if zookeeper == EMBEDDED else zookeeper
    seeds = [_parse_seed(text) for text in seed_topic or []]
    store_listener = None if zookeeper_port is None else parse_address(zookeeper_port)
    output = Output()
    if brokers is not None:
        from kctl.cli.serve_cluster import ClusterOptions, serve_cluster

        if listener:
            raise UsageError("--brokers gives each its listener: see --port")
        options = ClusterOptions(
            brokers=brokers,
            racks=racks.split(",") if racks else [],
            data_dir=data_dir,
            first_port=_check_port(port) if port is not None else DEFAULT_PORT,
            store=store_listener,
            seed_topics=seeds,
            ready_file=ready_file,
            is_durable=durable,
        )
        return serve_cluster(options, flags, config, output)
    if racks is not None:
        raise UsageError("--racks goes with --brokers", hint="one broker's is -c broker.rack=NAME")
    _set_listeners(flags, port, listener or [])
    broker_config, store_directory = make_config(flags, config, data_dir)
    warn_of_settings(broker_config, config, output)
    if (Path(data_dir) / "broker-1").exists() and store_directory is not None:
        raise UsageError(
            f"{data_dir} holds a cluster's data",
            hint="choose another --data-dir, or serve it with --brokers N",
        )
    if store_listener is not None and store_directory is None:
        raise UsageError("--zookeeper-port serves metadata that are kept here, not those there")
    stores = (store_directory, store_listener)
    return _run(broker_config, stores, seeds, ready_file, output)


def warn_of_settings(settings: "BrokerConfig", properties_file: str | None, output: Output) -> None:
    """Tell which of the given settings change nothing."""
    for name in settings.unknown:
        output.say(f"warning: {properties_file}: unknown setting {name}")
    idle = settings.idle()
    if idle:
        output.say(f"warning: settings without effect (docs/compatibility.md): {', '.join(idle)}")


def given_settings(flags: Mapping[str, str], properties_file: str | None) -> dict[str, str]:
    """Those of the file, and `flags`, which win."""
    from kctl.broker.config import parse_properties

    given: dict[str, str] = {}
    if properties_file is not None:
        given.update(parse_properties(read_text(properties_file)))
    given.update(flags)
    return given


def make_config(
    flags: Mapping[str, str], properties_file: str | None, data_dir: str
) -> "tuple[BrokerConfig, str | None]":
    """The broker's settings, and where its embedded store is (None: in ZooKeeper). What `flags`
    say wins over the file, and both over our defaults."""
    from kctl.broker.config import BrokerConfig

    given = given_settings(flags, properties_file)
    is_embedded = not given.get("zookeeper.connect")
    defaults = {"log.dirs": str(Path(data_dir) / "logs")} if "log.dir" not in given else {}
    if not {"listeners", "port", "host.name"} & given.keys():
        defaults["listeners"] = f"PLAINTEXT://127.0.0.1:{DEFAULT_PORT}"
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
) -> int:
    from kctl.broker.process import run_broker

    if ready_file is not None:
        Path(ready_file).unlink(missing_ok=True)

    def on_ready(broker: "Broker") -> None:
        addresses = [f"{it.host}:{it.port}" for it in broker.advertised_endpoints()]
        if ready_file is not None:
            _write_atomically(Path(ready_file), addresses[0])
        directories = ", ".join(config.log_dir_list)
        listener = broker.store_listener
        metadata = f"; ZooKeeper on {listener.host}:{listener.port}" if listener else ""
        output.write(f"kctl ready on {', '.join(addresses)} (logs in {directories}{metadata})\n")

    try:
        run_broker(
            config,
            store_directory=stores[0],
            store_listener=stores[1],
            seed_topics=seeds,
            on_ready=on_ready,
        )
    finally:
        if ready_file is not None:
            Path(ready_file).unlink(missing_ok=True)
    return DONE


def _set_listeners(flags: dict[str, str], port: int | None, listeners: list[str]) -> None:
    if port is not None and listeners:
        raise UsageError("Give --port or --listener, not both")
    if (port is not None or listeners) and "listeners" in flags:
        raise UsageError("Give the listeners once: --port, --listener or -c listeners=...")
    if port is not None:
        flags["listeners"] = f"PLAINTEXT://127.0.0.1:{_check_port(port)}"
    elif listeners:
        flags["listeners"] = ",".join(listeners)


def _check_port(port: int) -> int:
    if not 0 <= port < 65536:
        raise UsageError(f"--port {port} is no port")
    return port


def parse_address(text: str) -> "Endpoint":
    """`2181` or `0.0.0.0:2181`; UsageError."""
    from kctl.model import Endpoint

    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"Not a port: {text}", hint="e.g. --zookeeper-port 2181")
    return Endpoint(host or "127.0.0.1", int(port))


def _parse_seed(text: str) -> tuple[str, int]:
    name, colon, count = text.partition(":")
    if not name or (colon and not (count.isdigit() and int(count) > 0)):
        raise UsageError(f"Not a topic to seed: {text}", hint="e.g. --seed-topic orders:12")
    return name, int(count) if colon else 1


def _has_identity(properties: Mapping[str, str]) -> bool:
    """Whether a log directory knows which broker it belongs to: then that is who we are."""
    text = properties.get("log.dirs") or properties.get("log.dir", "")
    return any((Path(path.strip()) / "meta.properties").exists() for path in text.split(","))


def _write_atomically(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(f"{text}\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise KctlError(f"Cannot write --ready-file {path}: {error.strerror}") from None
