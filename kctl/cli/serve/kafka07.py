"""kctl serve --kafka-0.7: from the command line and 0.7's server.properties to a running broker."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl.cli.failures import DONE
from kctl.cli.output import Output
from kctl.cli.serve.settings import given_settings
from kctl.counts import are, counted, is_whole_number
from kctl.errors import UsageError
from kctl.imports import without_searches
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.broker07.broker import Broker07, Places
    from kctl.broker07.config import Broker07Config
    from kctl.model import Endpoint

_LOOPBACK = "127.0.0.1"
_ALL_ADDRESSES = ("0.0.0.0", "::", "[::]")
_SCHEME = "PLAINTEXT://"
_EMBEDDED = "none"
# Where kctl's own store is: beside the log directory, in which 0.7 allows no other directory.
_STORE_SUFFIX = ".metadata"
# Without a server.properties: every message is flushed, and can be read, at once.
_DEFAULTS = {
    "brokerid": "0",
    "port": "9092",
    "log.flush.interval": "1",
    "log.dir": "kctl-data-0.7",
}


@dataclass(frozen=True, slots=True)
class Kafka07Options:
    """The options of the command line."""

    # None: not given.
    data_dir: str | None
    port: int | None
    listeners: Sequence[str]
    settings: Mapping[str, str]
    properties_file: str | None
    zookeeper: str | None
    store_listener: "Endpoint | None"
    # --no-zookeeper
    is_alone: bool


def serve_kafka07(options: Kafka07Options, announce: Callable[[str], None], output: Output) -> int:
    """Run a broker until a signal; `announce` gets its address when it is ready."""
    with without_searches():
        from kctl.broker07.process import run_broker07

    config = _config(options, output)
    places = _places(options, config)

    def on_ready(broker: "Broker07") -> None:
        address = f"{places.advertised_host}:{broker.endpoint.port}"
        announce(address)
        output.write(f"kctl ready on {address} ({_described(broker, config)})\n")

    run_broker07(config, places, on_ready)
    return DONE


def _described(broker: "Broker07", config: "Broker07Config") -> str:
    text = f"Kafka 0.7, broker {config.broker_id}, logs in {config.log_dir}"
    if broker.store_listener is not None:
        text += f"; ZooKeeper on {broker.store_listener.host}:{broker.store_listener.port}"
    elif config.uses_zookeeper:
        text += f"; ZooKeeper at {config.zookeeper_connect}"
    if broker.logs.offline:
        count = len(broker.logs.offline)
        text += f"; {counted(count, 'log')} {are(count)} offline"
    return text


def _config(options: Kafka07Options, output: Output) -> "Broker07Config":
    from kctl.broker07.config import SETTINGS, parse_config

    given = given_settings(options.settings, options.properties_file)
    if options.data_dir is not None:
        given["log.dir"] = options.data_dir
    if options.port is not None:
        given["port"] = str(options.port)
    _set_zookeeper(given, options)
    if options.properties_file is None:
        given = {**_DEFAULTS, **given}
    for name in ("brokerid", "log.dir"):
        if not given.get(name):
            raise UsageError(f"{options.properties_file} does not set {name}", hint=_hint(name))
    parsed = parse_config(given)
    unknown = [name for name in parsed.unknown if name in options.settings]
    if unknown:
        known = ", ".join(setting.name for setting in SETTINGS[:3])
        raise UsageError(f"Kafka 0.7 has no setting {unknown[0]}", hint=f"it has {known}, ...")
    for name in parsed.unknown:
        output.say(f"warning: {options.properties_file}: unknown setting {name}")
    if parsed.idle:
        names = ", ".join(parsed.idle)
        output.say(f"warning: settings without effect (docs/compatibility.md): {names}")
    return parsed.config


def _hint(name: str) -> str:
    return "give --data-dir" if name == "log.dir" else f"give --set {name}=0"


def _set_zookeeper(given: dict[str, str], options: Kafka07Options) -> None:
    """Set zk.connect and enable.zookeeper; UsageError unless one of the ways is given."""
    is_embedded = options.store_listener is not None
    has_address = options.zookeeper not in (None, _EMBEDDED)
    is_alone = options.is_alone or options.zookeeper == _EMBEDDED
    if is_embedded + has_address + is_alone > 1:
        raise UsageError("Give one of --zookeeper, --zookeeper-port and --no-zookeeper")
    if is_alone:
        given["enable.zookeeper"] = "false"
    elif is_embedded:
        given.pop("zk.connect", None)
        given["enable.zookeeper"] = "true"
    elif options.zookeeper is not None:
        given["zk.connect"] = options.zookeeper
        given["enable.zookeeper"] = "true"
    elif given.get("enable.zookeeper", "true") == "true" and not given.get("zk.connect"):
        raise UsageError(
            "Where does the broker register?",
            hint="give --zookeeper HOST:PORT, --zookeeper-port 2181 (kctl's own) or --no-zookeeper",
        )


def _places(options: Kafka07Options, config: "Broker07Config") -> "Places":
    from kctl.broker07.broker import Places
    from kctl.model import Endpoint

    if len(options.listeners) > 1:
        raise UsageError("A broker of Kafka 0.7 has one listener")
    if options.listeners and options.port is not None:
        raise UsageError("Give --port or --listener, not both")
    # As Apache Kafka 0.7 does with its file; a command line alone stays on this machine.
    host = _LOOPBACK if options.properties_file is None else _ALL_ADDRESSES[0]
    listener = Endpoint(host, config.port)
    for text in options.listeners:
        listener = _parsed_listener(text)
    is_embedded = options.store_listener is not None
    return Places(
        listener=listener,
        advertised_host=_advertised(config, listener.host),
        store_directory=f"{config.log_dir.rstrip('/')}{_STORE_SUFFIX}" if is_embedded else None,
        store_listener=options.store_listener,
    )


def _advertised(config: "Broker07Config", host: str) -> str:
    """Return the host that is registered: an address, since tools of 0.7 take no names."""
    from kctl.runtime.real.network import local_ipv4_address

    if config.host_name is not None:
        return config.host_name
    return local_ipv4_address() if host in _ALL_ADDRESSES else host


def _parsed_listener(text: str) -> "Endpoint":
    from kctl.model import Endpoint

    host, _, port = text.removeprefix(_SCHEME).rpartition(":")
    if not text.startswith(_SCHEME) or not is_whole_number(port, 65_535) or not host:
        raise UsageError(f"Not a listener: {text}", hint=f"e.g. --listener {_SCHEME}0.0.0.0:9092")
    return Endpoint(host.strip("[]"), int(port))
