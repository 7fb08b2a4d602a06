"""The JSON Schemas describe the files that are read and written."""

import json

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny import labelled_pools

from aptool.data.parquet import arrow_schema
from aptool.data.writing import write_collection
from aptool.documents import check_document, load_schema
from aptool.errors import InputError

NAMES = ("pools", "answers", "scores", "run", "collection", "model", "matrix", "result")


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_valid(name):
    jsonschema.Draft202012Validator.check_schema(load_schema(name))


def check_described(schema, kind):
    """Assert that a JSON Schema and an Arrow type have the same fields, recursively."""
    if schema["type"] in ("string", ["string", "null"]):
        assert kind == pa.string()
    elif schema["type"] in ("number", "integer"):
        assert kind == {"number": pa.float64(), "integer": pa.int64()}[schema["type"]]
    elif schema["type"] == "array":
        check_described(schema["items"], kind.value_type)
    else:
        assert schema["type"] == "object"
        assert list(schema["properties"]) == [field.name for field in kind]
        assert set(schema["required"]) <= set(schema["properties"])
        for field in kind:
            assert field.nullable == ("null" in schema["properties"][field.name]["type"])
            check_described(schema["properties"][field.name], field.type)


@pytest.mark.parametrize("name", ["pools", "answers", "scores"])
def test_properties_equal_the_columns(name):
    check_described(load_schema(name), pa.struct(arrow_schema(name, optional=True)))


def test_written_files_conform_to_their_schemas(tmp_path):
    pools = labelled_pools("train", 10)
    splits = {"train": pools, "test": [pool._replace(texts=None) for pool in pools]}
    answers = [("a1", "here"), ("a2", "")]
    write_collection(tmp_path / "c", splits, name="c", source="here", answers=answers)

    manifest = json.loads((tmp_path / "c" / "collection.json").read_text())
    jsonschema.validate(manifest, load_schema("collection"))
    for file, name in (("train.pools", "pools"), ("test.pools", "pools"), ("answers", "answers")):
        table = pq.read_table(tmp_path / "c" / f"{file}.parquet")
        assert table.schema == arrow_schema(name)
        for line in table.to_pylist():
            jsonschema.validate(line, load_schema(name))


GOOD = {
    "collections": {"c": {"path": "here"}},
    "systems": {"random": {"baseline": "random"}},
    "rows": [{"collection": "c", "systems": ["random"]}],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [{"systems": ["random"]}]}, "rows/0: expected the entry 'collection'"),
        ({"seeds": [1]}, "top level: 'seeds': expected one of collections, measures, rows, systems"),
        ({"systems": {"bm25": {"baseline": "bm52"}}}, '\'bm52\': expected enum ["random", "bm25"]'),
    ],
)
def test_errors_name_position_and_expected_value(change, message):
    check_document("matrix", GOOD, "eval.toml")

    with pytest.raises(InputError) as error:
        check_document("matrix", {**GOOD, **change}, "eval.toml")

    assert str(error.value).startswith("eval.toml: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
