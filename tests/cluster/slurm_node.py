"""The first process of a node in separate namespaces: it runs a Slurm script.

The loopback interface of a new namespace is down. Ray notes the last cluster of a machine in /tmp/ray.
SIGUSR1 goes to the script, as with ``--signal=B:USR1``.
"""

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path


def main(*script):
    fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
    Path("/tmp/ray").mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/tmp/ray"], check=True)
    running = subprocess.Popen(["bash", *script])
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(running.pid, signal.SIGUSR1))
    while True:  # the first process of a namespace reaps all others, or `ray stop` would wait for them
        process, status = os.wait()
        if process == running.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
