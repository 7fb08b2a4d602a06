"""A run replaces no file of another program: not labels, not pools, not a run of another tool."""

import gzip

import pytest

from aptool.errors import InputError
from aptool.formats.runs import check_run_output, read_run

LINE = b"q1 Q0 a 1 2.5 bm25\n"


OTHERS = {
    "run": LINE,
    "run after a comment": b"# of a tool\n\n" + LINE,
    "gzip": gzip.compress(LINE, mtime=0),
    "qrels": b"q1 0 a 1\n",
    "Parquet": b"PAR1\x15\x04\x15",
    "JSON": b'{"format": 1, "model_type": "aptool", "recipe": {}}',
    "notes": b"notes of mine, which has more than six words in it\n",
    "comment": b"# only a comment\n",
    "gzip of qrels": gzip.compress(b"q1 0 a 1\n", mtime=0),
    "almost gzip": b"\x1f\x8bnot gzip",
    "zeros": b"\0" * 100,
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_file_of_another_program_is_not_replaced(tmp_path, content):
    file = tmp_path / "out"
    file.write_bytes(content)

    with pytest.raises(InputError, match="out: no record that aptool wrote it; expected another path"):
        check_run_output(file)

    assert file.read_bytes() == content


def test_folder_of_runs_is_refused(tmp_path):
    (tmp_path / "old").mkdir()

    (tmp_path / "old" / "notes").write_text("mine")
    with pytest.raises(InputError, match="old/: no record that aptool wrote it; expected another path"):
        check_run_output(f"{tmp_path}/old/")
    with pytest.raises(InputError, match="old: a folder; expected a file"):
        read_run(tmp_path / "old")
