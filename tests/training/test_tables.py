"""Columns of Parquet and Arrow files: what is no numbers is one line that names the column."""

from __future__ import annotations

import numpy as np
import pytest

from gradtool.errors import UsageError
from gradtool.training.tables import columns

pytestmark = pytest.mark.extra
KINDS = (".parquet", ".arrow", ".feather")
BAD = {
    "has lists of different lengths": [[1.0, 2.0], [3.0]],
    "has 1 nulls": [1.0, None],
    "'x' has 1 nulls": [[1.0], None],
    "no numbers": [{"a": 1}, {"a": 2}],
}


def written(path, columns_):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table = pa.table(columns_)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=3)
    else:
        feather.write_feather(table, path, compression="uncompressed", chunksize=3)
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 3), (1, 4), (0,)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1"])
def test_arrays_come_back_as_they_were(tmp_path, kind, shape, dtype):
    array = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    path = written(tmp_path / f"a{kind}", {"x": array if array.ndim == 1 else array.tolist()})
    found = columns(path)["x"]

    np.testing.assert_array_equal(found, array)
    assert found.dtype == dtype or len(shape) > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", BAD)
def test_what_is_no_array_is_one_line(tmp_path, kind, said):
    path = written(tmp_path / f"a{kind}", {"x": BAD[said]})
    with pytest.raises(UsageError) as error:
        columns(path)

    assert said in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [b"", b"PAR1", b"ARROW1\0\0", b"x" * 1000])
def test_what_is_no_table_is_one_line(tmp_path, kind, content):
    pytest.importorskip("pyarrow")
    path = tmp_path / f"a{kind}"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read as") as error:
        columns(path)

    assert "\n" not in str(error.value)
