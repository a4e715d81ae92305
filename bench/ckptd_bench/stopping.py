"""Ctrl-C and SIGTERM end a measurement at once, and only once: what it left is then cleaned up in peace."""

import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_STATUS = 130


def on_signals():
    """From here on the first of them raises KeyboardInterrupt in the main thread."""
    for number in SIGNALS:
        signal.signal(number, _stop)


def _stop(number, _frame):
    for later in SIGNALS:
        signal.signal(later, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)
