"""Uses every part of aptool that needs no PyTorch, in a temporary folder.

``make test-wheel`` runs it in an environment without PyTorch, tests/package/test_without_torch.py with the
import blocked (``--block``). Arguments: ``[--block] [FOLDER of a matrix, for a report]``.
"""

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "faq"
EXTRA = "[torch]"


class NoTorch:
    """Makes the import of PyTorch fail as if it were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


def command(*arguments):
    """Run a command in this process; return its exit code, stdout and stderr."""
    from aptool.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["aptool", *map(str, arguments)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), out.getvalue(), err.getvalue()


def succeeds(*arguments):
    code, out, err = command(*arguments)
    assert code == 0, (arguments, err)
    return out


def names_the_extra(*arguments):
    code, out, err = command(*arguments)
    assert (code, out) == (1, ""), (arguments, code, out, err)
    assert err.count("\n") == 1, err
    assert "needs PyTorch" in err, err
    assert EXTRA in err, err


def use_commands():
    tables = [f"{split}={EXAMPLES / split}.csv" for split in ("dev", "test")]
    succeeds("data", "import", "table", *tables, "--add-candidates", "all", "--output", "faq")
    succeeds("data", "check", "faq")
    succeeds("data", "stats", "faq")
    pools, qrels = "faq/test.pools.parquet", "faq/test.qrels"
    for baseline in ("bm25", "random"):
        succeeds("score", pools, "--model", baseline, "--output", f"{baseline}.run")
    assert "0.3088" in succeeds("eval", "bm25.run", "--qrels", qrels, "--intervals")
    succeeds("eval", "bm25.run", "--qrels", qrels, "--json")
    succeeds("compare", "bm25.run", "random.run", "--qrels", qrels)
    succeeds("fuse", "bm25.run", "random.run", "--output", "fused.run")
    assert "cpu (" in succeeds("--version")


def use_library():
    import aptool

    collection = aptool.Collection("faq")
    qrels, pools = collection.qrels("test"), collection.pools("test")
    bm25, chance = aptool.bm25_run(pools), aptool.Run.load("random.run")
    assert round(aptool.evaluate(qrels, bm25, ["MAP"]).means["MAP"], 4) == 0.3088
    assert aptool.compare(bm25, chance, qrels, "MAP")[0].p < 0.05
    assert len(aptool.fuse([bm25, chance]).to_dict()) == 78
    assert aptool.Qrels(qrels.to_dict()).to_dict() == qrels.to_dict()
    assert aptool.score(pools, "bm25", "python.run").pairs == 2418
    needing = {
        "aptool.train": lambda: aptool.train("data"),
        "aptool.load": lambda: aptool.load,
        "a model": lambda: aptool.score(pools, "models/none", "x.run"),
    }
    for subject, call in needing.items():
        try:
            call()
        except aptool.AptoolError as error:
            message = str(error)
        else:
            message = "no error"
        assert message.startswith(f"{subject} needs PyTorch: "), message
        assert EXTRA in message, message


def use_commands_that_need_torch():
    pools = "faq/test.pools.parquet"
    names_the_extra("train", "faq", "--output", "m")
    Path("m").mkdir()
    Path("m/config.json").touch()
    names_the_extra("score", pools, "--model", "m", "--output", "m.run")
    names_the_extra("explain", "--model", "m", "--question", "q", "--answer", "a")


def write_report(matrix):
    succeeds("report", matrix, "--output", "report.html")
    assert Path("report.html").stat().st_size > 10_000


def main():
    arguments = sys.argv[1:]
    if "--block" in arguments:
        arguments.remove("--block")
        sys.meta_path.insert(0, NoTorch())
    matrices = [Path(argument).resolve() for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        use_commands()
        use_library()
        use_commands_that_need_torch()
        for matrix in matrices:
            write_report(matrix)
    assert "torch" not in sys.modules
    print("Everything that needs no PyTorch works without it.")


if __name__ == "__main__":
    main()
