"""Signals that end a command, whatever the command does when they arrive."""

import signal
import threading
from contextlib import suppress

import pytest

from gpo.atomic_files import cleans_up_on_sigterm


def test_a_signal_whose_exception_a_library_discards_ends_the_work_at_its_next_step():
    # Elsewhere the signal would end the tests.
    assert threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    with cleans_up_on_sigterm() as check:
        check()
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            check()
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before
