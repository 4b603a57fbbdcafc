"""Whether a broker is ready, with the reasons if it is not.

/readyz answers 200 if clients should be sent here, else 503; a restart would not help.
"""

from kctl.broker.services import Services
from kctl.store.interface import SessionState


class Readiness:
    """What stands between a broker and its clients."""

    def __init__(self) -> None:
        self.services: Services | None = None
        # Set by the broker.
        self.is_running = False
        self.is_stopping = False
        self.session: SessionState = SessionState.CONNECTED

    def reasons(self) -> list[str]:
        """Return why the broker is not ready; nothing if it is."""
        if self.is_stopping:
            return ["the broker is stopping"]
        services = self.services
        if services is None or not self.is_running:
            return ["the broker is starting"]
        reasons = []
        if self.session is not SessionState.CONNECTED:
            reasons.append(f"the session with the metadata store is {self.session.value}")
        cache = services.metadata_cache
        if cache.controller_id is None:
            reasons.append("no controller is known")
        if not cache.is_broker_alive(services.broker_id):
            reasons.append("the controller does not know this broker")
        if not services.log_manager.live_log_dirs:
            reasons.append("all log directories have failed")
        return reasons
