"""Damaged Parquet files fail with a one-line error."""

import pytest
from tiny import labelled_pools, row, write_pools

from aptool.data.pools import list_units, read_pools
from aptool.errors import InputError


@pytest.mark.parametrize("name", [b"question_id", b"candidates", b"answer_id"])
def test_column_name_that_is_not_utf_8_is_one_line(tmp_path, name):
    pool = labelled_pools("test", 12)[0]
    path = tmp_path / "x.pools.parquet"
    write_pools(path, [row(pool.question_id, pool.question, [("a1", "x"), ("a2", "y")])])
    data = path.read_bytes()
    path.write_bytes(data.replace(name, b"\xff" + name[1:]))

    with pytest.raises(InputError) as error:
        list_units([path])

    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_row_group_with_fewer_rows_than_the_footer_says_is_one_line(tmp_path):
    path = tmp_path / "x.pools.parquet"
    write_pools(path, [row(f"q{i}", "where?", [("a1", "x"), ("a2", "y")]) for i in range(7)])
    number, other = b"\x16\x0e", b"\x16\x12"  # Thrift: the next field, an i64 of 7 or of 9
    before, _, after = path.read_bytes().rpartition(number)  # the rows of the row group follow its columns
    path.write_bytes(before + other + after)

    with pytest.raises(InputError, match="row group 0: 7 rows, but 9 in the footer"):
        read_pools(list_units([path])[0])
