"""The errors of `kctl.kafka` that are not in `kctl.errors`. Pure."""

from kctl.errors import KctlError


class QueueFullError(KctlError):
    """The queue of an asynchronous producer is full: the message was not taken. Send more slowly,
    or let `send` wait (`queue.enqueue.timeout.ms`)."""


class ConsumerTimeoutError(KctlError):
    """No message arrived within `consumer.timeout.ms`. The stream can be read again."""
