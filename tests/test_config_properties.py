"""Recipe files with random faults: read to the values that tomllib gives, or refused in one line."""

import math
import tomllib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aptool.config import load_recipe
from aptool.errors import InputError

# Type and bounds of entries, as the reference of recipes documents them: least, and first value too large.
ENTRIES = {
    "training.epochs": (int, 0, 2**31),
    "training.minibatch": (int, 1, 2**31),
    "training.margin": (float, 0, 1e6),
    "training.dropout": (float, 0, 1),
    "training.temperature": (float, 0.001, 1e6),
    "training.in_batch": (bool, 0, 2),
    "text.lowercase": (bool, 0, 2),
    "vectors.source": (str,),
    "vectors.window": (int, 1, 33),
}
CHOICES = {"training.loss": ["hinge", "softmax", "logistic"]}
VALUES = ["0", "1", "-1", "32", "33", "2147483648", "1.5", "0.0", "0.999", "1e6", "1e400", "nan", "-inf"]
VALUES += ["true", "false", '"hinge"', '"words"', '""', '"é"', "[]", "[1]", "{ a = 1 }", "1979-05-27"]
NAMES = ["training.epoch", "training", "trainig.epochs", "encoder.window", "a.b.c"]
START = 'encoder = { type = "cnn", window = 3 }\npooling = { type = "max" }\n'


def expected(data):
    """The value of each entry of a recipe file; None if the file is faulty."""
    try:
        table = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None
    networks = [table.pop(name, None) for name in ("encoder", "pooling")]
    if not all(isinstance(network, dict) and isinstance(network.get("type"), str) for network in networks):
        return None
    known = {key.partition(".")[0] for key in ENTRIES}
    if set(table) - known or any(not isinstance(section, dict) for section in table.values()):
        return None
    entries = {f"{name}.{key}": value for name, section in table.items() for key, value in section.items()}
    return entries if all(is_valid(name, value) for name, value in entries.items()) else None


def is_valid(name, value):
    if name in CHOICES:
        return value in CHOICES[name]
    kind, *bounds = ENTRIES.get(name, (type(None),))
    if kind is float and type(value) is int:  # an integer is also a number
        value = float(value)
    if type(value) is not kind:
        return False
    return not bounds or (math.isfinite(value) and bounds[0] <= value < bounds[1])


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.sampled_from([*ENTRIES, *CHOICES, *NAMES]), max_size=4),
    draws=st.data(),
    place=st.floats(0, 1),
    change=st.sampled_from(
        [None, None, None, b"", b"\0", b"\xff", b'"', b"=", b"\r", b"[", b"1", b"\xc2\xa0"]
    ),
)
def test_a_recipe_has_the_values_of_its_file_or_is_refused(tmp_path, names, draws, place, change):
    lines = [f"{name} = {draws.draw(st.sampled_from(VALUES))}\n" for name in names]
    data = (START + "".join(lines)).encode()
    if change is not None:
        position = int(place * len(data))
        data = data[:position] + change + data[position + draws.draw(st.integers(0, 2)) :]
    path = tmp_path / "mine.toml"
    path.write_bytes(data)
    entries = expected(data)

    try:
        recipe = load_recipe(str(path))
    except InputError as error:
        message = str(error)
        assert entries is None, message
        assert message.startswith(f"{path}: ")
        assert len(message.splitlines()) == 1
        return
    assert entries is not None, data
    values = recipe.to_dict()
    assert {name: values[name.split(".")[0]][name.split(".")[1]] for name in entries} == entries
