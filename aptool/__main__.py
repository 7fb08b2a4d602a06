"""The ``aptool`` command, and ``python -m aptool``: Ctrl-C ends with one line and exit code 130.

An interrupt during imports is handled here too, since compiled modules may print, replace or lose it.
"""

import os
import signal
import sys
from types import TracebackType
from typing import Any, NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line and exit."""
    signal.signal(signal.SIGINT, _end)  # no output exists yet
    sys.excepthook = _print_exception
    sys.unraisablehook = _print_unraisable
    from aptool.cli.main import main as run

    interrupts = []

    def interrupt(*arguments: Any) -> None:
        interrupts.append(arguments)
        signal.default_int_handler(*arguments)

    signal.signal(signal.SIGINT, interrupt)
    try:
        run()
    except Exception:
        if interrupts:
            _end()
        raise


def _end(*arguments: object) -> NoReturn:
    """Exit at once; unfinished output files have temporary names."""
    os.write(2, b"aptool: interrupted\n")
    os._exit(INTERRUPTED)


def _print_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        _end()
    sys.__excepthook__(kind, error, trace)


def _print_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    main()
