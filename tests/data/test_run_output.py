"""A run is written to a file, not to a folder of another program."""

import pytest

from aptool.data.runs import check_run_output, read_run
from aptool.errors import InputError


def test_folder_of_runs_is_refused(tmp_path):
    (tmp_path / "old").mkdir()

    (tmp_path / "old" / "notes").write_text("mine")
    with pytest.raises(InputError, match="old/: it exists; expected another path"):
        check_run_output(f"{tmp_path}/old/")
    with pytest.raises(InputError, match=r"old: a folder without old\.json beside it; expected a file"):
        read_run(tmp_path / "old")
