"""Damaged stores of encoded answers."""

import json
import shutil
from pathlib import Path

from case import Case, content, surface
from mutators import flip, mutate_bytes, mutate_document

from surfaces.pools import same_run


@surface(3)
def encoded(case: Case) -> None:
    """A store with a damaged file: scores are equal or refused, and encoding repairs the store."""
    shutil.copytree(case.world.encoded, "s")
    pools = case.world.collection / "test.pools.parquet"
    manifest, part = Path("s/encoded.json"), next(Path("s").glob("*.safetensors"))
    kind = case.random.randrange(4)
    if kind == 0:
        document = json.loads(manifest.read_text())
        manifest.write_text(mutate_document(case.random, document), errors="surrogateescape")
    elif kind == 1:
        part.write_bytes(mutate_bytes(case.random, part.read_bytes()))
    else:
        part.write_bytes(flip(case.random, part.read_bytes()))
    same_run(case, str(pools), content(case.world.run), "--encoded", "s")
    if case.run("encode", pools, "--model", case.world.model, "--output", "s", outputs=("s",)) is None:
        return
    Path("x.run").unlink(missing_ok=True)
    same_run(case, str(pools), content(case.world.run), "--encoded", "s")
