"""``run.py explain``: what the emulator's counters saw of a variant, as one page to look at."""
