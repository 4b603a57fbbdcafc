"""Arrow arrays made from buffers equal those that pyarrow makes."""

import pytest

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

from kctl.records.arrow_arrays import (  # noqa: E402
    bytes_array,
    bytes_scalar,
    mask_array,
    numbers_array,
    valid_mask,
)


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64, np.uint8])
def test_numbers(kind):
    values = np.arange(40, dtype=kind)
    assert numbers_array(values).equals(pa.array(values))
    assert numbers_array(values[3::2]).equals(pa.array(values[3::2].copy()))
    assert numbers_array(values[:0]).equals(pa.array(values[:0]))


@pytest.mark.parametrize("every", [1, 3, 100])
def test_numbers_with_nulls(every):
    values = np.arange(41)
    is_null = values % every == every - 1
    assert numbers_array(values, is_null=is_null).equals(pa.array(values, mask=is_null))


def test_masks_and_bytes():
    mask = np.arange(21) % 3 == 0
    assert mask_array(mask).equals(pa.array(mask))
    texts = [b"a", b"", b"\xff\x00", b"longer"]
    assert bytes_array(iter(texts)).equals(pa.array(texts, pa.binary()))
    assert bytes_array([]).equals(pa.array([], pa.binary()))
    assert bytes_scalar(b"x").equals(pa.scalar(b"x", pa.binary()))


def test_the_mask_of_valid_elements_of_a_slice():
    array = pa.array([None, b"a", None, b"b", b"c", None, b"", b"d", None, b"e"])
    for start in (0, 1, 3):
        found = valid_mask(array.slice(start, 6))
        assert found.dtype == np.bool_
        assert found.tolist() == array.slice(start, 6).is_valid().to_pylist()
