"""No network connection without a URL, a hub name or a cluster."""

import os
import socket
import sys

import forked
from tiny import OPTIONS, SIZES

from aptool.cli.main import main


def closed(*args, **kwargs):
    sys.stderr.write("CONNECTS\n")
    raise OSError("the network is closed")


def run_commands(folder, commands):
    """Run commands in a process in which connections and name look-ups raise an error."""
    for name in [name for name in os.environ if name.startswith("HF_")]:
        del os.environ[name]
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = False  # of the environment in which it was imported
    os.chdir(folder)
    for name in ("connect", "connect_ex", "sendto", "bind", "listen"):
        setattr(socket.socket, name, closed)
    for name in ("getaddrinfo", "gethostbyname", "gethostbyaddr", "create_connection"):
        setattr(socket, name, closed)
    for command in commands:
        sys.argv = ["aptool", *command]
        try:
            main()
        except SystemExit as end:
            if end.code:
                sys.exit(f"{command}: {end.code}")


def with_closed_network(*commands, cwd):
    words = [list(map(str, command)) for command in commands]
    return forked.run(cwd / "process", run_commands, str(cwd), words)


def test_commands_do_not_use_the_network(collection_folder, tmp_path):
    matrix = tmp_path / "t.toml"
    matrix.write_text(
        f'[collections.c]\npath = "{collection_folder}"\nsplit = "test"\n[systems.b]\nbaseline = "bm25"\n'
        '[[rows]]\ncollection = "c"\nsystems = ["b"]\n'
    )
    small = [word for option in (*OPTIONS, *SIZES["cnn"], "training.epochs=1") for word in ("--set", option)]

    finished = with_closed_network(
        ("train", collection_folder, "--output", "m", *small),
        ("score", collection_folder, "--model", "m", "--output", "x.run"),
        ("eval", "x.run", "--qrels", collection_folder / "test.qrels"),
        ("matrix", matrix, "--output", "o"),
        ("report", "o"),
        ("explain", "--model", "m", "--question", "where", "--answer", "here", "--html", "e.html"),
        cwd=tmp_path,
    )

    assert finished.code == 0, finished.err[-2000:]
    assert "CONNECTS" not in finished.err


def test_hub_name_uses_the_network(collection_folder, tmp_path):
    """Shows that the tests above would detect a connection."""
    pools = collection_folder / "test.pools.parquet"
    command = ("score", pools, "--model", "owner/name", "--output", "x.run")

    finished = with_closed_network(command, cwd=tmp_path)

    assert finished.code != 0
    assert "CONNECTS" in finished.err
