"""Settings of a Kafka client as options of the data source (`kafka.*`): which ones kctl applies,
which have no effect, and which it rejects."""

import difflib
from collections.abc import Mapping, Set

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

# They matter only with TLS or SASL, which `security.protocol` selects.
_SECURITY = ("ssl.", "sasl.", "security.providers")


@dataclass(frozen=True)
class ClientSettings:
    """The settings of one kind of client."""

    # As an error names it, in the plural: "consumers".
    clients: str
    applied: Set[str]
    without_effect: Set[str]
    # What to do instead, by the name of the setting.
    rejected: Mapping[str, str]

    def check(self, option: str) -> None:
        """Raise UsageError if kctl cannot honour `option`, a lower-case name with its prefix
        `kafka.`."""
        name = option.removeprefix("kafka.")
        if name in self.rejected:
            raise UsageError(f"The option {option} is not supported", hint=self.rejected[name])
        if name in self.applied or name in self.without_effect or name.startswith(_SECURITY):
            return
        known = self.applied | self.without_effect
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        raise UsageError(
            f"The option {option} is not a setting of Kafka's {self.clients}",
            hint=f"did you mean kafka.{near[0]}?" if near else None,
        )
