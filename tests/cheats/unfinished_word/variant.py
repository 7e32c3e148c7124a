"""Imitates the message about a forbidden operation without naming the operation."""
# expect: ended at a forbidden operation

import os

os.write(2, b"FORBIDDEN: ")
os._exit(3)
