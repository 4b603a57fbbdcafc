"""Encodes and decodes messages with Python source generated for each (class, version) on first use.

`decode` returns one message class for all versions: fields that a version lacks keep their
defaults. `encode` returns a list of parts, usually one `bytes`; record data passes through as the
same object, so that a `FileSlice` or a memoryview is never copied.

A malicious frame makes no decoder allocate more than a few times the frame's own size. The reasons:
an array's count is checked against the bytes left (each element takes its smallest size) and
against a budget of elements per message before its list grows; strings and bytes are slices, and a
slice never exceeds the buffer. A length that reaches past the end leaves the position past the end,
where the next read fails, or the last check does; so strings need no separate check. Negative
lengths are null, as in Kafka (-2 too), where the field may be null; bytes after the message are
ignored; bytes that are not UTF-8 read as replacement characters.

Errors: CorruptDataError for bytes; ApiError UNSUPPORTED_VERSION for a version that does not exist
or that lacks a field which has a value; UsageError for a value that does not fit its field.
"""

# The two source generators are imported on first use: `kctl --help` needs neither.
from collections.abc import Callable
from struct import error as struct_error
from typing import Any, TypeVar

from kctl.errors import CorruptDataError, UsageError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message, Part
from kctl.work import Work

MessageT = TypeVar("MessageT", bound=Message)

# Elements of a message that are released in one turn, within a millisecond. So many numbers of an
# array take as long as one of them.
ELEMENTS_RELEASED_PER_TURN = 4_000
NUMBERS_PER_ELEMENT = 32


def encode(message: Message, version: int) -> list[Part]:
    """Encode `message` in `version`; the result is not empty, and its first part is `bytes`."""
    cls = message.__class__
    encoder = cls.encoders.get(version) or compile_encoder(cls, version)
    try:
        return encoder(message)
    except (struct_error, TypeError, AttributeError, UnicodeError) as error:
        raise _unfit(cls, version, error) from error


def encoding(
    message: Message, version: int, elements: list[object] | None = None
) -> Work[list[Part]]:
    """Encode as `encode` does, with a `yield` after every STRUCTS_PER_YIELD structs of arrays.

    The message must not change meanwhile. Its structs are added to `elements`, see `releasing`.
    """
    cls = message.__class__
    encoder = cls.yielding_encoders.get(version) or compile_yielding_encoder(cls, version)
    try:
        parts: list[Part] = yield from encoder(message, _keeper(elements))
    except (struct_error, TypeError, AttributeError, UnicodeError) as error:
        raise _unfit(cls, version, error) from error
    return parts


def decode(cls: type[MessageT], version: int, buffer: Buffer, position: int = 0) -> MessageT:
    """Return the message at `position`. Record data are views into `buffer`, all else is copied."""
    decoder = cls.decoders.get(version) or compile_decoder(cls, version)
    try:
        message: MessageT = decoder(buffer, position)[0]
    except (struct_error, IndexError, CorruptDataError) as error:
        raise _corrupt(cls, version, error) from error
    return message


def decoding(
    cls: type[MessageT],
    version: int,
    buffer: Buffer,
    position: int = 0,
    elements: list[object] | None = None,
) -> Work[MessageT]:
    """Decode as `decode` does, with a `yield` after every STRUCTS_PER_YIELD structs or strings of
    arrays, or as many numbers as take as long.

    The buffer must not change meanwhile. The structs, and the numbers of long arrays, are added to
    `elements`, see `releasing`.
    """
    decoder = cls.yielding_decoders.get(version) or compile_yielding_decoder(cls, version)
    try:
        found: tuple[MessageT, int] = yield from decoder(buffer, position, _keeper(elements))
    except (struct_error, IndexError, CorruptDataError) as error:
        raise _corrupt(cls, version, error) from error
    return found[0]


def releasing(elements: list[object]) -> Work[None]:
    """Release a message of which all else is released, with a `yield` before each
    ELEMENTS_RELEASED_PER_TURN of its elements, or as many numbers as take as long.

    Python releases a message with all that is in it at once: tens of milliseconds for half a
    million structs. One that was decoded or encoded in turns leaves `elements`, each after those in
    it. From their end, a struct is released before the structs that it refers to, which remain.
    """
    while elements:
        yield
        left = ELEMENTS_RELEASED_PER_TURN
        while elements and left > 0:
            last = elements.pop()
            left -= 1 + (len(last) // NUMBERS_PER_ELEMENT if type(last) is tuple else 0)
            del last


def _keeper(elements: list[object] | None) -> Callable[[object], object]:
    return _nothing if elements is None else elements.append


def _nothing(_element: object) -> None:
    """Leave the element to its message."""


def decode_at(
    cls: type[MessageT], version: int, buffer: Buffer, position: int = 0
) -> tuple[MessageT, int]:
    """Return the message at `position`, and the position after it."""
    decoder = cls.decoders.get(version) or compile_decoder(cls, version)
    try:
        message, end = decoder(buffer, position)
    except (struct_error, IndexError, CorruptDataError) as error:
        raise _corrupt(cls, version, error) from error
    return message, end


def _unfit(cls: type[Message], version: int, error: Exception) -> UsageError:
    return UsageError(f"{cls.__name__} v{version} cannot be encoded: {error}")


def _corrupt(cls: type[Message], version: int, error: Exception) -> CorruptDataError:
    what = str(error) if isinstance(error, CorruptDataError) else "ends before its last field"
    return CorruptDataError(f"{cls.__name__} v{version}: {what}")


def compile_encoder(cls: type[Message], version: int) -> Any:
    """Return the compiled function of `encode`, cached in `cls.encoders`."""
    from kctl.protocol.encoder_source import encoder_source

    _check_version(cls, version)
    encoder = cls.encoders[version] = _execute(encoder_source(cls, version))
    return encoder


def compile_yielding_encoder(cls: type[Message], version: int) -> Any:
    """Return the compiled generator function of `encoding`, cached in `cls.yielding_encoders`."""
    from kctl.protocol.encoder_source import encoder_source

    _check_version(cls, version)
    source = encoder_source(cls, version, yields=True)
    encoder = cls.yielding_encoders[version] = _execute(source)
    return encoder


def compile_decoder(cls: type[Message], version: int) -> Any:
    """Return the compiled function of `decode_at`, cached in `cls.decoders`."""
    from kctl.protocol.decoder_source import decoder_source

    _check_version(cls, version)
    decoder = cls.decoders[version] = _execute(decoder_source(cls, version))
    return decoder


def compile_yielding_decoder(cls: type[Message], version: int) -> Any:
    """Return the compiled generator function of `decoding`, cached in `cls.yielding_decoders`."""
    from kctl.protocol.decoder_source import decoder_source

    _check_version(cls, version)
    source = decoder_source(cls, version, yields=True)
    decoder = cls.yielding_decoders[version] = _execute(source)
    return decoder


def _check_version(cls: type[Message], version: int) -> None:
    if not cls.min_version <= version <= cls.max_version:
        message = (
            f"{cls.__name__} has versions {cls.min_version} to {cls.max_version}, not {version}"
        )
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)


def _execute(source: tuple[str, dict[str, Any]]) -> Any:
    text, namespace = source
    exec(compile(text, "<codec>", "exec"), namespace)
    return namespace["run"]
