"""Ends by a signal without a name. A look-up of the name would fail in the grader, not in the submission."""
# expect: ended by signal 40

import signal

signal.raise_signal(40)
