"""README.md: its Python runs, its commands exist, its links lead somewhere."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from readme import README, python_blocks, run_readme

ROOT = README.parent
TEXT = README.read_text(encoding="utf-8")
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]


def test_the_python_runs(collection_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    names = run_readme(collection_folder)

    assert python_blocks(TEXT)[0].startswith("import aptool\n")
    ranking = names["ranking"]
    assert sorted(index for index, _ in ranking) == list(range(len(names["answers"])))
    assert [score for _, score in ranking] == sorted((score for _, score in ranking), reverse=True)
    assert names["scores"].dtype == "float32"
    assert names["weights"].sum() == pytest.approx(1)
    assert set(names["means"]) == {"MAP", "MRR", "P@1"}
    assert all(0 <= value <= 1 for value in names["means"].values())
    assert 0 <= names["p"] <= 1
    for run, pairs in (("dev.run", 120), ("fused.run", 120)):
        assert len(Path(run).read_text(encoding="utf-8").splitlines()) == pairs
    assert Path("models/wikiqa/model.safetensors").is_file()


def test_the_commands_exist(aptool):
    block = next(
        block for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S) if "aptool train" in block
    )
    commands = [shlex.split(line) for line in block.splitlines() if line.startswith("aptool ")]

    assert len(commands) >= 5
    for _, name, *arguments in commands:
        help_of = [name, *arguments[:2]] if name == "data" else [name]
        options = {argument for argument in arguments if argument.startswith("--")}
        finished = aptool(*help_of, "--help")
        assert finished.code == 0
        for option in options:
            assert re.search(rf"{option}\b", "\n".join(finished.out)), f"{name} {option}"


def test_links_lead_to_files_of_the_repository():
    base = f"{URLS['Repository']}/blob/main/"
    links = re.findall(r"\]\(([^)]+)\)", TEXT)

    assert all(link.startswith("https://") for link in links)  # others do not work on PyPI
    ours = [link.removeprefix(base).partition("#")[0] for link in links if link.startswith(base)]
    assert ours
    assert not [path for path in ours if not (ROOT / path).is_file()]


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))

    assert set(re.findall(r"make ([a-z-]+)", TEXT)) <= targets
