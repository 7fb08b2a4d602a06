"""How long OpenMP's threads spin at a barrier before they sleep.

torch computes with libgomp, whose threads by default spin for about three milliseconds wherever one waits for
another. Beside other busy processes the spinning threads take the cores that the awaited thread needs, and a
training with many short parallel steps, such as that of a biLSTM, slows down to a fraction of its speed. A
short spin gives the core away sooner. Measured on two cores with ``python -m bench.waiting``, it lost nothing
on a quiet machine (182 pairs per second, with the long spin 184) and showed no gain beside two busy processes
(15, with the long spin 23), where passive waiting (``OMP_WAIT_POLICY=PASSIVE``) reached 47.5. The command
sets it; a program that imports the library decides for itself.
"""

import os
import sys

# Iterations of libgomp's loop; it estimates 100,000 of them per millisecond, and spins 300,000 by default.
SPIN_COUNT = 10_000

# With any of these, how threads wait is the user's choice.
USER_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def limit_spinning(spin_count: int = SPIN_COUNT) -> None:
    """Sets ``GOMP_SPINCOUNT`` in the environment, unless the user has decided how threads wait.

    libgomp reads it when torch is loaded; once torch is imported this does nothing.

    Args:
        spin_count: iterations that a waiting thread spins; 0 sleeps at once.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in USER_SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = str(spin_count)
