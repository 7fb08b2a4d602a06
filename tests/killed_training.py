"""A program that runs `aptool train` and kills itself with SIGKILL before or after a given call.

Arguments: MODULE:FUNCTION, ``before`` or ``after``, the number of the call, and the arguments of `aptool`.
"""

import importlib
import itertools
import os
import signal
import sys


def kill_at(target: str, when: str, call: int) -> None:
    module_name, name = target.split(":")
    module = importlib.import_module(module_name)
    function, calls = getattr(module, name), itertools.count(1)

    def wrapped(*args, **kwargs):
        is_last = next(calls) == call
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, name, wrapped)


if __name__ == "__main__":
    kill_at(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    from aptool.cli.main import main

    sys.argv[1:] = sys.argv[4:]
    main()
