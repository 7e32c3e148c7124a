"""``run.py explain``: one page that shows the emulator's counters and traces of a variant."""
