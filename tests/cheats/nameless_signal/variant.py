"""Ends by a signal that has no name, so that whoever looks it up fails, and not the submission."""
# expect: ended by signal 40

import signal

signal.raise_signal(40)
