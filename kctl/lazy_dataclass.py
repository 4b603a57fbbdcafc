"""dataclass: that of the standard library, but each method is compiled when it is first called.

The standard library compiles up to six methods of each class while its module is imported: 95 ms of
CPU for the 150 classes that `kctl serve` imports, most of which are never instantiated, printed or
compared before the broker is ready.

`dataclasses.fields`, `replace`, `asdict` and `is_dataclass` work as usual, and so do pickling and
copying. Until the first call, `inspect.signature` shows no parameters of a constructor. A class
derives only from classes that are made here, too: the standard library takes those that are frozen
here for classes that are not.

The standard library (dataclasses.make_dataclass) also compiles what is called.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass

# What the standard library is asked for: no method, or one of these.
_NONE = {"init": False, "repr": False, "eq": False}
_OPTIONS: dict[str, dict[str, Any]] = {
    "__repr__": {**_NONE, "repr": True},
    "__eq__": {**_NONE, "eq": True},
    "__hash__": {**_NONE, "eq": True, "unsafe_hash": True},
}

# Stands for a value that the constructor makes.
_NEW = object()


def _dataclass(
    cls: type | None = None,
    /,
    *,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - as in the standard library
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> type | Callable[[type], type]:
    """Decorate `cls`, or return the decorator; see `dataclasses.dataclass`."""
    wanted = {"__init__": init, "__repr__": repr, "__eq__": eq}

    def decorate(cls: Any) -> type:
        own = cls.__dict__
        names = [it for it, is_wanted in wanted.items() if is_wanted and it not in own]
        # Python gives a class that defines __eq__ None for __hash__.
        if eq and own.get("__hash__") is None:
            if frozen:
                names.append("__hash__")
            else:
                cls.__hash__ = None
        for name in names:
            setattr(cls, name, _compiled_later(cls, name, is_frozen=frozen))
        if frozen:
            _freeze(cls, is_slotted=slots)
        # With slots this returns another class, which has what was set here.
        return dataclasses.dataclass(slots=slots, kw_only=kw_only, **_NONE)(cls)

    return decorate if cls is None else decorate(cls)


if not TYPE_CHECKING:
    dataclass = _dataclass


def _compiled_later(cls: type, name: str, *, is_frozen: bool) -> Callable[..., Any]:
    """Return a method that replaces itself by the real one when it is called."""
    real: Any = None

    def method(self: object, *args: Any, **named: Any) -> Any:
        nonlocal real
        if real is None:
            owner = next(it for it in type(self).__mro__ if it.__dict__.get(name) is method)
            real = _compiled(owner, name, is_frozen=is_frozen)
            setattr(owner, name, real)
        return real(self, *args, **named)

    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    method.__module__ = cls.__module__
    return method


def _compiled(cls: Any, name: str, *, is_frozen: bool) -> Any:
    if name == "__init__":
        return _constructor(cls, is_frozen=is_frozen)
    like = dataclasses.make_dataclass(
        cls.__name__,
        [(it.name, it.type, it) for it in dataclasses.fields(cls)],
        # The standard library takes long to write a docstring.
        namespace={"__doc__": cls.__doc__},
        **_OPTIONS[name],
    )
    return _named(cls, like.__dict__[name])


def _constructor(cls: Any, *, is_frozen: bool) -> Any:
    """Return __init__, which takes a quarter of the time to compile that make_dataclass takes."""
    positional: list[str] = ["self"]
    named: list[str] = []
    body = ["pass"]
    values: dict[str, Any] = {"set__": object.__setattr__, "new__": _NEW}
    for it in dataclasses.fields(cls):
        name, of = it.name, f"of__{it.name}"
        default, alone, value = "", "", name
        if it.default is not dataclasses.MISSING:
            values[of] = it.default
            default, alone = f"={of}", of
        elif it.default_factory is not dataclasses.MISSING:
            values[of] = it.default_factory
            default, alone = "=new__", f"{of}()"
            value = f"{of}() if {name} is new__ else {name}"
        if it.init:
            (named if it.kw_only else positional).append(name + default)
        else:
            value = alone
        if value:
            body.append(
                f"set__(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}"
            )
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *["*"][: len(named)], *named])
    # The names of fields are identifiers of the class's source.
    exec(f"def __init__({parameters}):\n " + "\n ".join(body), values)
    method = values["__init__"]
    method.__annotations__ = {it.name: it.type for it in dataclasses.fields(cls) if it.init}
    return _named(cls, method)


def _named(cls: type, method: Any) -> Any:
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{method.__name__}", cls.__module__
    return method


def _freeze(cls: Any, *, is_slotted: bool) -> None:
    cls.__setattr__, cls.__delattr__ = _refuse_to_set, _refuse_to_delete
    if is_slotted:
        # Otherwise pickle and copy set the fields one by one.
        cls.__getstate__, cls.__setstate__ = _state, _set_state


def _refuse_to_set(_self: object, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, it.name) for it in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for it, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, it.name, value)
