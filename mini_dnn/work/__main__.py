"""``python -m mini_dnn.work FOLDER LIST NUMBER``: an array job runs chunk NUMBER of a list."""

import sys
from pathlib import Path

from mini_dnn.work.chunk import run_chunk

folder, chunks, number = sys.argv[1:]
run_chunk(folder, Path(chunks).read_text().split()[int(number)])
