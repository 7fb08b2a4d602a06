"""Nothing connects to anything unless a URL, a name on the hub or a cluster was given."""

import json
import os
import subprocess
import sys

from tiny import OPTIONS, SIZES

# Commands in a process whose every attempt to reach another one, or to look up its name, is an error.
CLOSED = """
import json, socket, sys

def closed(*given, **named):
    sys.stderr.write("CONNECTS\\n")
    raise OSError("the network is closed")

for name in ("connect", "connect_ex", "sendto", "bind", "listen"):
    setattr(socket.socket, name, closed)
for name in ("getaddrinfo", "gethostbyname", "gethostbyaddr", "create_connection"):
    setattr(socket, name, closed)
from aptool.cli.main import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["aptool", *command]
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{command}: {end.code}")
"""


def with_closed_network(*commands, cwd):
    given = json.dumps([list(map(str, command)) for command in commands])
    return subprocess.run(
        [sys.executable, "-c", CLOSED, given],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("HF_")},
    )


def test_the_network_is_not_used(collection_folder, tmp_path):
    matrix = tmp_path / "t.toml"
    matrix.write_text(
        f'[collections.c]\npath = "{collection_folder}"\nsplit = "test"\n[systems.b]\nbaseline = "bm25"\n'
        '[[rows]]\ncollection = "c"\nsystems = ["b"]\n'
    )
    small = [word for option in (*OPTIONS, *SIZES["cnn"], "training.epochs=1") for word in ("--set", option)]

    found = with_closed_network(
        ("train", collection_folder, "--output", "m", *small),
        ("score", collection_folder, "--model", "m", "--output", "x.run"),
        ("eval", "x.run", "--qrels", collection_folder / "test.qrels"),
        ("matrix", matrix, "--output", "o"),
        ("report", "o"),
        ("explain", "--model", "m", "--question", "where", "--answer", "here", "--html", "e.html"),
        cwd=tmp_path,
    )

    assert found.returncode == 0, found.stderr[-2000:]
    assert "CONNECTS" not in found.stderr


def test_doctor_does_not_use_the_network(tmp_path):
    """Its exit code says whether this machine has what training needs, which is no matter here."""
    found = with_closed_network(("doctor",), cwd=tmp_path)

    assert "free here" in found.stdout, found.stderr[-2000:]
    assert "CONNECTS" not in found.stderr


def test_a_name_on_the_hub_is_looked_for(collection_folder, tmp_path):
    """The test above would see it."""
    pools = collection_folder / "test.pools.parquet"
    command = ("score", pools, "--model", "hf://owner/name", "--output", "x.run")

    found = with_closed_network(command, cwd=tmp_path)

    assert found.returncode != 0
    assert "CONNECTS" in found.stderr
