"""Recipes, single options, and trainings with them."""

import functools
from pathlib import Path

from case import Case, content, surface
from mutators import mutate_bytes
from world import small_options


@surface(4)
def recipes(case: Case) -> None:
    import aptool

    presets = sorted((Path(aptool.__file__).parent / "presets").glob("*.toml"))
    data = content(case.random.choice(presets))
    lines = data.split(b"\n")
    at = case.random.randrange(len(lines))
    if b"=" in lines[at] and case.random.random() < 0.7:
        lines[at] = lines[at].partition(b"=")[0] + b"= " + case.nasty().encode("utf-8", "surrogatepass")
        data = b"\n".join(lines)
    else:
        data = mutate_bytes(case.random, data)
    Path("r.toml").write_bytes(data)
    case.run("train", "none", "--preset", "r.toml", "--output", "m")


@surface(5)
def overrides(case: Case) -> None:
    preset = case.random.choice(("ap-cnn", "qa-bilstm", "ap-bilstm", "qa-cnn", "nothing"))
    key = f"{case.random.choice(_sections())}={case.nasty()}"
    more = case.random.choice((["--set", case.nasty()], []))
    case.run("train", "none", "--preset", preset, "--output", "m", "--set", key, *more)


@functools.cache
def _sections() -> list[str]:
    from aptool.config import load_recipe
    from aptool.models.build import ENCODERS, POOLINGS

    table = load_recipe("ap-cnn").to_dict()
    names = [f"{part}.{name}" for part, entry in table.items() if isinstance(entry, dict) for name in entry]
    for part, registry in (("encoder", ENCODERS), ("pooling", POOLINGS)):
        for entry in registry.values():
            names += [f"{part}.{name}" for name in entry.Options.__dataclass_fields__]
    return [*names, "training", "x.y", "training.x", ".", "training.epochs.x"]


@surface(2)
def trainings(case: Case) -> None:
    """A training with one option set to a value within its bounds, or just outside."""
    key = case.random.choice(
        [name for name in _sections() if name.startswith(("training.", "text.", "vectors."))]
    )
    value = case.random.choice(("0", "1", "2", "0.5", "1e-12", "999", "0.999", "100", "-1", "1.0", "true"))
    if key in ("training.epochs", "vectors.epochs") and value in ("999", "100"):
        value = "2"
    options = ("--output", "m", "--set", "training.epochs=1", "--set", f"{key}={value}")
    case.run("train", case.world.collection, *small_options(), *options, outputs=("m", "m.training"))
