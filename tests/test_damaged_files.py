"""Damage that file formats do not detect fails with one-line errors."""

import json
import math
import os
import random
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tiny import row, write_pools

from aptool.data.collection import Collection
from aptool.data.pools import list_units, read_pools
from aptool.errors import InputError
from aptool.files import sha256_of
from aptool.models.model import check_finite, load_model, read_tensors, write_tensors
from aptool.outputs import check_output, check_output_folder
from aptool.reporting.runs import read_runs


def flipped(path, seed):
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    generator = random.Random(seed)
    data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    path.write_bytes(data)


def test_flipped_bit_never_changes_pools(collection_folder, tmp_path):
    whole = collection_folder / "test.pools.parquet"
    expected = read_pools(list_units([whole])[0])
    path = tmp_path / "x.pools.parquet"
    refused = 0
    for seed in range(150):
        shutil.copy(whole, path)
        flipped(path, seed)
        try:
            units = list_units([path])
            pools = [read_pools(unit) for unit in units]
        except InputError:
            refused += 1
            continue
        assert [batch.answers.to_pylist() for batch in pools] == [expected.answers.to_pylist()]
        assert pools[0].answer_ids.equals(expected.answer_ids)
        assert pools[0].question_ids.equals(expected.question_ids)
        assert pools[0].questions.equals(expected.questions)
    assert refused > 50


def test_changed_bit_of_tensors_is_detected(tmp_path):
    tensors = {"a": torch.arange(1000.0), "b": torch.zeros(3, 4, dtype=torch.bfloat16), "n": torch.tensor(7)}
    whole = tmp_path / "whole"
    write_tensors(whole, tensors, {"key": "value"})
    actual, metadata = read_tensors(whole)
    assert metadata == {"key": "value"}
    assert all(torch.equal(actual[name], tensors[name]) for name in tensors)
    for seed in range(200):
        shutil.copy(whole, tmp_path / "x")
        flipped(tmp_path / "x", seed)
        try:
            actual, metadata = read_tensors(tmp_path / "x")
        except InputError:
            continue
        # The bit is in the name of the checksum, or in white space.
        assert all(torch.equal(actual[name], tensors[name]) for name in tensors)
        assert metadata["key"] == "value"


def test_changed_files_of_a_collection_are_refused(collection_folder, tmp_path):
    for name in ("train.qrels", "dev.pools.parquet"):
        shutil.copytree(collection_folder, tmp_path / name)
        flipped(tmp_path / name / name, 3)
        collection = Collection(tmp_path / name)
        with pytest.raises(InputError, match=r"as collection\.json has it"):
            collection.qrels_file("train"), collection.pools_file("dev")
        assert collection.pools_file("test").is_file()


def test_truncation_and_padding_of_a_tokenizer_file_are_disabled(model_folder, tmp_path):
    entries = {
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 10_000_000},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 99_999_999,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
    }
    shutil.copytree(model_folder, tmp_path / "m")
    path = tmp_path / "m" / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
    texts = ["where is the river near the mountain", "here", ""]

    actual = load_model(tmp_path / "m").tokenizer.encode(texts)

    expected = load_model(model_folder).tokenizer.encode(texts)
    assert np.array_equal(actual.ids, expected.ids)
    assert np.array_equal(actual.offsets, expected.offsets)


def test_pipe_as_input_and_file_as_parts_folder_are_one_line(aptool, model_folder, tmp_path):
    os.mkfifo(tmp_path / "x.pools.parquet")
    actual = aptool(
        "score", tmp_path / "x.pools.parquet", "--model", model_folder, "--output", tmp_path / "x.run"
    )
    assert actual.code == 1
    assert "x.pools.parquet: a pipe; expected a seekable file" in actual.err[-1]

    write_pools(tmp_path / "y.pools.parquet", [row()])
    parts = tmp_path / "y.run.parts"
    for make in (lambda: parts.symlink_to("nowhere"), lambda: parts.write_text("mine")):
        make()
        output = "--output", tmp_path / "y.run"
        actual = aptool("score", tmp_path / "y.pools.parquet", "--model", model_folder, *output)
        assert actual.code == 1
        assert re.search(r"y\.run\.parts: .*; expected a (writable )?folder", actual.err[-1])
        assert os.path.lexists(parts)
        assert not (tmp_path / "y.run").exists()
        parts.unlink()


def test_nested_answer_id_is_not_counted_as_a_candidate(aptool, model_folder, tmp_path):
    inner = pa.list_(pa.struct([("answer_id", pa.string())]))
    candidate = pa.struct([("meta", inner), ("answer_id", pa.string()), ("text", pa.string())])
    schema = pa.schema(
        [
            ("question_id", pa.string()),
            ("question", pa.string()),
            ("candidates", pa.list_(pa.field("element", candidate))),
        ]
    )
    candidates = [
        {"meta": [{"answer_id": "z"}, {"answer_id": "y"}], "answer_id": "a", "text": "here"},
        {"meta": [], "answer_id": "b", "text": "there"},
    ]
    table = pa.Table.from_pylist(
        [{"question_id": "q1", "question": "where", "candidates": candidates}], schema=schema
    )
    for number, compliant in enumerate((True, False)):
        path = tmp_path / f"x{number}.pools.parquet"
        pq.write_table(table, path, use_compliant_nested_type=compliant)
        assert aptool("data", "check", path).code == 0
        run = tmp_path / f"x{number}.run"
        assert aptool("score", path, "--model", model_folder, "--output", run).code == 0
        assert len(run.read_text().splitlines()) == 2


def test_link_to_itself_and_path_that_is_not_utf_8_are_one_line(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    odd = tmp_path / os.fsdecode(b"m\xff")
    for output, problem in ((tmp_path / "loop", "a link to itself"), (odd, "a name that is not UTF-8")):
        for check in (check_output, check_output_folder):
            with pytest.raises(InputError, match=problem):
                check(output)


def test_invalid_results_of_a_matrix_are_one_line(tmp_path):
    result = {
        "collection": "c",
        "system": "r",
        "seed": 1,
        "run": "x.run",
        "seconds": {},
        "measures": {"MAP": 1},
    }
    (tmp_path / "x.run").write_text("q1 Q0 a1 1 1.0 r\n")
    result["sha256"] = sha256_of(tmp_path / "x.run")
    for change in ({"collection": {}}, {"system": []}, {"seed": "x"}, {"run": 1}, {"measures": {}}):
        (tmp_path / "table.json").write_text(json.dumps({"results": [result | change]}))
        with pytest.raises(InputError, match="expected the results of `aptool matrix`"):
            read_runs(tmp_path)


def test_one_weight_that_is_not_finite_is_found():
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        largest = torch.full((100, 7), torch.finfo(dtype).max).to(dtype)  # their sum is infinite
        check_finite({"a": largest, "none": torch.empty(0), "ids": torch.arange(3)}, "m")
        # The last one has no infinity.
        numbers = (math.nan,) if dtype == torch.float8_e4m3fn else (math.nan, math.inf, -math.inf)
        for number in numbers:
            damaged = largest.clone()
            damaged[63, 2] = number
            with pytest.raises(
                InputError, match=r"^m: weight 'b': NaN or infinite; expected finite weights$"
            ):
                check_finite({"a": largest, "b": damaged}, "m")
