"""The ``aptool`` command, and ``python -m aptool``: Ctrl-C and SIGTERM end with one line.

The exit code is 130 or 143. A signal during imports is handled here too, since compiled modules may print,
replace or lose the exception.
"""

import gc
import os
import signal
import sys
from types import FrameType, TracebackType
from typing import NoReturn

# Signals that end a command: the line on stderr and the exit code, 128 and the number of the signal.
ENDS = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143)}

# New objects per search for garbage cycles. Imports and syntax trees have many objects and hardly any cycles.
OBJECTS_PER_SEARCH = 100_000

_received: list[int] = []


def main() -> NoReturn:
    """Run the command line and exit."""
    gc.set_threshold(OBJECTS_PER_SEARCH)
    _open_closed_streams()
    for number in ENDS:
        signal.signal(number, _end)  # no output exists yet
    sys.excepthook = _print_exception
    sys.unraisablehook = _print_unraisable
    from aptool.cli.main import main as run

    def interrupt(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        raise SystemExit(ENDS[signal.SIGTERM][1]) if number == signal.SIGTERM else KeyboardInterrupt

    for number in ENDS:
        signal.signal(number, interrupt)
    try:
        run(_received)
    except SystemExit as stop:
        _flush()
        if _received and isinstance(stop.code, int):  # threads of Ray may crash while the interpreter ends
            os._exit(stop.code)
        gc.freeze()  # the interpreter would search all objects for cycles when it ends
        raise
    except Exception:
        if _received:
            _end(_received[0])
        raise


def _open_closed_streams() -> None:
    """Open the null device in place of stdin, stdout and stderr if the caller closed them."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def _flush() -> None:
    """Flush stdout and stderr; the interpreter would exit with 120 if it could not."""
    for number, stream in enumerate((sys.stdout, sys.stderr), 1):
        try:
            stream.flush()
        except (OSError, ValueError):  # a full disk, or a closed stream
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)


def _end(number: int, frame: FrameType | None = None) -> NoReturn:
    """Exit at once; unfinished output files have temporary names."""
    line, code = ENDS[signal.Signals(number)]
    os.write(2, f"aptool: {line}\n".encode())
    os._exit(code)


def _print_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _end_if_interrupted(kind)
    sys.__excepthook__(kind, error, trace)


def _print_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    _end_if_interrupted(unraisable.exc_type)
    sys.__unraisablehook__(unraisable)


def _end_if_interrupted(kind: type[BaseException]) -> None:
    if _received and issubclass(kind, KeyboardInterrupt | SystemExit):
        _end(_received[0])


if __name__ == "__main__":
    main()
