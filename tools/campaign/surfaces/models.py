"""Damaged model folders, training checkpoints and caches."""

import json
import shutil
from pathlib import Path

import readers
from case import Case, content, surface
from mutators import NASTY_VALUES, flip, mutate_bytes, mutate_document


@surface(3)
def weights(case: Case) -> None:
    _copy_model(case)
    path = Path("m/model.safetensors")
    path.write_bytes(
        flip(case.random, path.read_bytes())
        if case.random.random() < 0.8
        else mutate_bytes(case.random, path.read_bytes())
    )
    _score_model(case, same=True)


@surface(6)
def configs(case: Case) -> None:
    _copy_model(case)
    path = Path("m/config.json")
    path.write_text(mutate_document(case.random, json.loads(path.read_text())), errors="surrogateescape")
    _score_model(case, same=False)


@surface(4)
def tokenizers(case: Case) -> None:
    _copy_model(case)
    path = Path("m/tokenizer.json")
    document = json.loads(path.read_text())
    only = case.random.random() < 0.4
    if only:
        document[case.random.choice(("truncation", "padding"))] = case.random.choice(
            (
                {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
                {"direction": "Left", "max_length": 2, "strategy": "OnlyFirst", "stride": 9},
                {
                    "strategy": {"Fixed": 10**7},
                    "direction": "Right",
                    "pad_id": 10**7,
                    "pad_type_id": 0,
                    "pad_token": "x",
                },
                *NASTY_VALUES[:20],
            )
        )
        path.write_text(json.dumps(document))
    else:
        path.write_text(mutate_document(case.random, document), errors="surrogateescape")
    _score_model(case, same=only)


def _copy_model(case: Case) -> None:
    shutil.copytree(case.world.model, "m")


def _score_model(case: Case, *, same: bool) -> None:
    pools = case.world.collection / "test.pools.parquet"
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    if case.run("score", pools, "--model", "m", "--output", "x.run", outputs=outputs) is None:
        return
    actual, expected = (
        readers.scores(data) for data in (Path("x.run").read_bytes(), content(case.world.run))
    )
    assert {q: set(actual[q]) for q in actual} == {q: set(expected[q]) for q in expected}
    assert not same or actual == expected, "other scores"


@surface(5)
def states(case: Case) -> None:
    from aptool.errors import AptoolError
    from aptool.training.checkpoint import STATE, load_state

    expected = load_state(case.world.folder / "state", "key")
    Path("s").mkdir()
    data = content(case.world.folder / "state" / STATE)
    Path("s", STATE).write_bytes(
        flip(case.random, data) if case.random.random() < 0.7 else mutate_bytes(case.random, data)
    )
    try:
        actual = load_state(Path("s"), "key")
    except AptoolError as error:
        case.ended = str(error.exit_code)
        assert "\n" not in str(error)
        return
    case.ended = "0"
    assert actual is None or (repr(actual) == repr(expected)), "another state"


@surface(3)
def caches(case: Case) -> None:
    import torch

    from aptool.errors import AptoolError
    from aptool.models.tensor_file import read_tensors, write_tensors

    matrix = torch.arange(60.0).reshape(20, 3)
    write_tensors(Path("x"), {"vectors": matrix}, {})
    Path("x").write_bytes(flip(case.random, Path("x").read_bytes()))
    try:
        actual, _ = read_tensors(Path("x"), checked=True)
    except AptoolError as error:
        case.ended = str(error.exit_code)
        return
    case.ended = "0"
    assert torch.equal(actual["vectors"], matrix)
