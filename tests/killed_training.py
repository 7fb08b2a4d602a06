"""A program that runs `aptool train` and sends itself a signal before or after a given call.

Arguments: MODULE:FUNCTION, ``before`` or ``after``, the number of the call, the number of the signal, and the
arguments of `aptool`.
"""

import importlib
import itertools
import os
import sys


def kill_at(target: str, when: str, call: int, number: int) -> None:
    module_name, name = target.split(":")
    module = importlib.import_module(module_name)
    function, calls = getattr(module, name), itertools.count(1)

    def wrapped(*args, **kwargs):
        is_last = next(calls) == call
        if is_last and when == "before":
            os.kill(os.getpid(), number)
        result = function(*args, **kwargs)
        if is_last and when == "after":
            os.kill(os.getpid(), number)
        return result

    setattr(module, name, wrapped)


if __name__ == "__main__":
    kill_at(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    from aptool.__main__ import main

    sys.argv[1:] = sys.argv[5:]
    main()
