"""The ledger of a run: which jobs were added and which have run, in files outside of the store. All lines of a file have
the same length."""

import os
import time

ADDED, RAN = os.environ["ADDED"], os.environ["RAN"]


def note(file, text):
    # One write to a file that is open for appending is one line, even if other processes write too.
    with open(file, "ab", buffering=0) as opened:
        opened.write(f"{text}\n".encode())


def note_added(number, is_sure):
    """Waits until few jobs are ahead of those that have run, so that jobs are added during the whole run."""
    note(ADDED, f"{number:06} {'sure..' if is_sure else 'unsure'}")
    while os.path.getsize(ADDED) // 14 > os.path.getsize(RAN) // 7 + 100:
        time.sleep(0.02)


def note_ran(number):
    note(RAN, f"{number:06}")
