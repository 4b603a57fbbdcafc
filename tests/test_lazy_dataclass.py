"""Dataclasses whose methods are compiled at the first call behave like those of the library."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from kctl.lazy_dataclass import dataclass

OPTIONS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"slots": True, "kw_only": True},
    {"slots": True, "repr": False},
]
NAMES = [",".join(options) or "none" for options in OPTIONS]


def _point(decorate: Any, **options: bool) -> Any:
    """A class with every kind of field."""

    class Point:
        """A place."""

        x: int
        y: int = 7
        labels: list[str] = field(default_factory=list)
        total: int = field(init=False, default=3)
        notes: list[str] = field(init=False, default_factory=list, repr=False, compare=False)
        width: int = field(default=1, kw_only=True)

    return decorate(**options)(Point)


@pytest.fixture(params=OPTIONS, ids=NAMES)
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """The class of this module's decorator, and that of the library's."""
    return _point(dataclass, **request.param), _point(dataclasses.dataclass, **request.param)


def _outcome(act: Any) -> object:
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - it is what is compared
        return type(error), str(error)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((), {"x": 1}),
        ((), {"x": 1, "y": 2, "labels": ["a"], "width": 4}),
        ((1,), {}),
        ((1, 2, ["a"]), {"width": 4}),
        ((), {}),
        ((1, 2, [], 4), {}),
        ((1,), {"total": 2}),
    ],
)
def test_constructors_take_and_refuse_the_same(
    both: tuple[Any, Any], values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    ours, theirs = (
        _outcome(lambda cls=cls: dataclasses.asdict(cls(*values, **named))) for cls in both
    )
    assert ours == theirs
    # The second call goes to the compiled method.
    again = _outcome(lambda: dataclasses.asdict(both[0](*values, **named)))
    assert again == theirs


def test_instances_are_compared_hashed_and_printed_alike(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    for cls in both:
        cls(x=1).notes.append("not shared")
        assert cls(x=1).notes == []
    for first, second in ((1, 1), (1, 2)):
        found, expected = (cls(x=first) == cls(x=second) for cls in both)
        assert found is expected
    assert ours(x=1) != theirs(x=1)
    assert ours.__eq__(ours(x=1), 1) is theirs.__eq__(theirs(x=1), 1)
    found, expected = (
        _outcome(lambda cls=cls: hash(cls(x=1, labels=())) == hash(cls(x=1, labels=())))
        for cls in both
    )
    assert found == expected
    if ours.__repr__ is not object.__repr__:
        assert repr(ours(x=1)) == repr(theirs(x=1))


def test_a_frozen_class_refuses_changes_and_can_be_copied() -> None:
    one = Frozen(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x  # type: ignore[misc]
    assert copy.copy(one) == one
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert dataclasses.replace(one, x=2) == Frozen(2, one.names)


def test_what_a_class_defines_itself_stays() -> None:
    assert repr(Own(1)) == "own 1"
    assert Own(1) == Own(2)
    assert hash(Own(1)) == 5
    # __post_init__ has run.
    assert Own(1).twice == 2
    assert Derived(1, extra=3).twice == 2
    assert Unhashable.__hash__ is None


def test_methods_are_compiled_for_the_class_that_has_them() -> None:
    """A subclass, which is no dataclass, may be the first to use them."""

    class Sub(Frozen):
        pass

    assert Sub(1) != Frozen(1)
    assert Sub(1) == Sub(1)
    assert len({Sub(1), Sub(1)}) == 1
    assert inspect.signature(Frozen).parameters.keys() == {"x", "names"}
    assert dataclasses.is_dataclass(Frozen)


def test_a_broker_compiles_no_method_before_it_is_called() -> None:
    """No module that `kctl serve` imports uses the decorator of the standard library."""
    code = (
        "import dataclasses, sys\n"
        "made = []\n"
        "real = dataclasses.dataclass\n"
        "def noted(cls=None, /, **options):\n"
        "    if options.get('init', True):\n"
        "        made.append(sys._getframe(1).f_globals['__name__'])\n"
        "    return real(cls, **options)\n"
        "dataclasses.dataclass = noted\n"
        "import kctl.cli.app, kctl.broker.process, kctl.broker.assembly\n"
        "print([name for name in made if name.startswith('kctl.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@dataclass(frozen=True, slots=True)
class Frozen:
    """Fields that cannot be changed."""

    x: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """A class with methods of its own."""

    x: int
    twice: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.x)

    def __repr__(self) -> str:
        return f"own {self.x}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 5


@dataclass(frozen=True, slots=True)
class Derived(Own):
    """A dataclass above another one."""

    extra: int = 0


@dataclass(slots=True)
class Unhashable:
    """Instances that may change."""

    x: int
