"""The settings that a link takes over from its source. Pure."""

from collections.abc import Mapping

from kctl.configs.link_configs import LINK_CONFIGS
from kctl.configs.topic_configs import TOPIC_CONFIGS
from kctl.errors import UsageError

# These concern a cluster and not the data.
NOT_FOLLOWED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.format.version",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        *LINK_CONFIGS,
    }
)


def followed_settings(own: Mapping[str, str], source: Mapping[str, str]) -> dict[str, str]:
    """Return a link's overrides: its own of what it does not follow, and those of its source."""
    kept = {name: text for name, text in own.items() if name in NOT_FOLLOWED}
    taken = {name: text for name, text in source.items() if is_followed(name, text)}
    return {**kept, **taken}


def is_followed(name: str, text: str) -> bool:
    """Return whether a link has this override of its source; later releases have more configs."""
    if name in NOT_FOLLOWED or name not in TOPIC_CONFIGS:
        return False
    try:
        TOPIC_CONFIGS[name].key.parse(text)
    except UsageError:
        return False
    return True
