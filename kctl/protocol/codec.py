"""Encodes and decodes messages with Python source written for each (class, version) on first use.

`decode` gives one message for all versions: what a version lacks keeps its default. `encode`
gives a list of parts, usually one `bytes`; record data goes through as the same object, so that
a `FileSlice` or a memoryview is never copied.

A hostile frame makes no decoder allocate more than a few times the frame's own size. The reasons:
an array's count is checked against the bytes left (each element takes its smallest size) and
against a budget of elements per message before its list grows; strings and bytes are slices, and
a slice never exceeds what is there. A length that reaches past the end leaves the position past
the end, where the next read fails, or the last check does; so no string needs a check of its own.
Negative lengths are null, as in Kafka (-2 too), where the field may be null; bytes behind the
message are ignored; text that is not UTF-8 reads as replacement characters.

Errors: CorruptDataError for bytes; ApiError UNSUPPORTED_VERSION for a version that does not exist
or that lacks a field which has a value; UsageError for a value that does not fit its field.
"""

# The two writers of source are imported when they are first needed: `kctl --help` never is.
from struct import error as struct_error
from typing import Any, TypeVar

from kctl.errors import CorruptDataError, UsageError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message, Part

MessageT = TypeVar("MessageT", bound=Message)


def encode(message: Message, version: int) -> list[Part]:
    """`message` in the form of `version`; not empty, and the first part is `bytes`."""
    cls = message.__class__
    encoder = cls.encoders.get(version) or compile_encoder(cls, version)
    try:
        return encoder(message)
    except (struct_error, TypeError, AttributeError, UnicodeError) as error:
        words = f"{cls.__name__} v{version} cannot be encoded: {error}"
        raise UsageError(words) from error


def decode(cls: type[MessageT], version: int, buffer: Buffer, position: int = 0) -> MessageT:
    """The message at `position`. Record data are views into `buffer`, all else is copied."""
    decoder = cls.decoders.get(version) or compile_decoder(cls, version)
    try:
        message: MessageT = decoder(buffer, position)[0]
    except (struct_error, IndexError, CorruptDataError) as error:
        raise _corrupt(cls, version, error) from error
    return message


def decode_at(
    cls: type[MessageT], version: int, buffer: Buffer, position: int = 0
) -> tuple[MessageT, int]:
    """The message at `position`, and the position behind it."""
    decoder = cls.decoders.get(version) or compile_decoder(cls, version)
    try:
        message, end = decoder(buffer, position)
    except (struct_error, IndexError, CorruptDataError) as error:
        raise _corrupt(cls, version, error) from error
    return message, end


def _corrupt(cls: type[Message], version: int, error: Exception) -> CorruptDataError:
    what = str(error) if isinstance(error, CorruptDataError) else "ends before its last field"
    return CorruptDataError(f"{cls.__name__} v{version}: {what}")


def compile_encoder(cls: type[Message], version: int) -> Any:
    """The function behind `encode`, kept in `cls.encoders`."""
    from kctl.protocol.encoder_source import encoder_source

    _check_version(cls, version)
    encoder = cls.encoders[version] = _execute(encoder_source(cls, version))
    return encoder


def compile_decoder(cls: type[Message], version: int) -> Any:
    """The function behind `decode_at`, kept in `cls.decoders`: (buffer, position) -> both."""
    from kctl.protocol.decoder_source import decoder_source

    _check_version(cls, version)
    decoder = cls.decoders[version] = _execute(decoder_source(cls, version))
    return decoder


def _check_version(cls: type[Message], version: int) -> None:
    if not cls.min_version <= version <= cls.max_version:
        words = f"{cls.__name__} has versions {cls.min_version} to {cls.max_version}, not {version}"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, words)


def _execute(source: tuple[str, dict[str, Any]]) -> Any:
    text, namespace = source
    exec(compile(text, "<codec>", "exec"), namespace)
    return namespace["run"]
