"""Says what the grader says of what is forbidden, and not of what, so that whoever reads on finds nothing."""
# expect: ended at a forbidden operation

import os

os.write(2, b"FORBIDDEN: ")
os._exit(3)
