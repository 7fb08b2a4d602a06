"""Damaged Parquet files end in one line."""

import pytest
from tiny import labelled_pools, row, write_pools

from aptool.errors import InputError
from aptool.formats.pools import list_units


@pytest.mark.parametrize("name", [b"question_id", b"candidates", b"answer_id"])
def test_a_column_name_that_is_not_utf_8_is_one_line(tmp_path, name):
    pool = labelled_pools("test", 12)[0]
    path = tmp_path / "x.pools.parquet"
    write_pools(path, [row(pool.question_id, pool.question, [("a1", "x"), ("a2", "y")])])
    data = path.read_bytes()
    path.write_bytes(data.replace(name, b"\xff" + name[1:]))

    with pytest.raises(InputError) as error:
        list_units([path])

    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
