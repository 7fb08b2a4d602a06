"""Uses an installed wheel from outside the source tree: ``make test-wheel``.

Started by the Python of an environment that has the wheel with the extra ``torch`` only.
"""

import importlib.resources
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SMALL = ["--set", "vectors.dim=16", "--set", "encoder.features=16", "--set", "training.epochs=2"]


def aptool(*arguments):
    """Run the installed command and return its output."""
    command = [str(Path(sys.executable).with_name("aptool")), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if finished.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {finished.returncode}\n{finished.stderr}")
    print(f"$ aptool {' '.join(arguments)}", finished.stdout, sep="\n")
    return finished.stdout


def main():
    import aptool as package

    installed = Path(package.__file__).parent
    assert installed.is_relative_to(sys.prefix), f"{installed} is not in {sys.prefix}"
    files = importlib.resources.files("aptool")
    for name in ("py.typed", "schemas/pools.schema.json", "presets/ap-cnn.toml"):
        assert files.joinpath(name).is_file(), f"{name} is not in the wheel"
    assert "torch" not in sys.modules, "import aptool loads torch"

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        assert "Commands:" in aptool("--help")
        write_tiny("tiny")
        aptool("data", "check", "tiny")
        aptool("train", "tiny", "--output", "model", *SMALL)
        aptool("score", "tiny/dev.pools.parquet", "--model", "model", "--output", "dev.run")
        aptool("eval", "dev.run", "--qrels", "tiny/dev.qrels")
        use_readme()
    print("The wheel works: the README's Python and the commands.")


def write_tiny(folder):
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from tiny import labelled_pools

    from aptool.data.writing import write_collection

    splits = {
        split: labelled_pools(split, size) for split, size in (("train", 40), ("dev", 20), ("test", 20))
    }
    write_collection(folder, splits, name="tiny", source="made for tests")


def use_readme():
    """Run the Python of the README on a tiny collection, with a system that needs no extra."""
    from readme import train_and_compare

    train_and_compare("tiny", preset="ap-cnn")


if __name__ == "__main__":
    main()
