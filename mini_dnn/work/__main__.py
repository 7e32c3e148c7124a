"""``python -m mini_dnn.work FOLDER LIST NUMBER``: an array job runs chunk NUMBER of a list."""

import sys
from pathlib import Path

from mini_dnn.work.chunk import run_chunk

try:
    folder, chunks, number = sys.argv[1:]
    name = Path(chunks).read_text().split()[int(number)]
except (OSError, ValueError, IndexError) as error:  # the script was started without sbatch, for example
    sys.exit(
        f"error: there is no chunk '{' '.join(sys.argv[3:])}' of work ({error}). An array job of Slurm "
        "runs this command: submit the script that --executor sbatch wrote, unchanged, with sbatch"
    )
run_chunk(folder, name)
