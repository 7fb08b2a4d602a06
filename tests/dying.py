"""Functions by which a test program kills itself, or sends itself another signal, at a given point."""

import importlib
import itertools
import os
import signal
import sys


def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(calls, function):
    """Wrap a function so that the process dies at call number ``calls`` + 1."""
    return signal_at("before", calls + 1, signal.SIGKILL, function)


def signal_at(when, call, number, function):
    """Wrap a function so that the process sends itself a signal before or after a call of it."""
    calls = itertools.count(1)

    def wrapped(*args, **kwargs):
        is_last = next(calls) == call
        if is_last and when == "before":
            os.kill(os.getpid(), number)
        result = function(*args, **kwargs)
        if is_last and when == "after":
            os.kill(os.getpid(), number)
        return result

    return wrapped


def aptool_killed(target, when, call, number, arguments):
    """Run a command of aptool that sends itself a signal before or after a call of MODULE:FUNCTION."""
    module_name, name = target.split(":")
    module = importlib.import_module(module_name)
    setattr(module, name, signal_at(when, call, number, getattr(module, name)))
    from aptool.__main__ import main

    sys.argv = ["aptool", *arguments]
    main()
