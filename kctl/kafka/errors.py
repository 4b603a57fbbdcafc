"""The errors of `kctl.kafka` that are not in `kctl.errors`. Pure."""

from kctl.errors import KctlError


class QueueFullError(KctlError):
    """The queue of an asynchronous producer is full: the message was not taken. Send more slowly,
    or let `send` wait (`queue.enqueue.timeout.ms`)."""


class ConsumerTimeoutError(KctlError):
    """No message arrived within `consumer.timeout.ms`. The stream can be read again."""


class RebalanceFailedError(KctlError):
    """A consumer did not get its partitions in `rebalance.max.retries` attempts. It has left the
    group, and joins again after a pause: the stream can be read again."""


class MessageTooLargeError(KctlError):
    """A message is larger than the largest fetch that the consumer makes. Allow larger ones, or go
    on after it."""

    def __init__(self, message: str, bytes_needed: int | None) -> None:
        super().__init__(message, hint="raise buffer_size_max")
        # The size of a fetch that gets the message; None if it is not known.
        self.bytes_needed = bytes_needed
