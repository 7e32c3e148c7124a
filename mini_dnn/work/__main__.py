"""``python -m mini_dnn.work FOLDER LIST NUMBER``: an array job runs chunk NUMBER of a list."""

import sys
from collections.abc import Sequence
from pathlib import Path

from mini_dnn.work.chunk import run_chunk


def chunk_of(words: Sequence[str]) -> tuple[str, str]:
    """Return the folder of work and the name of the chunk."""
    if len(words) != 3:
        raise ValueError(f"expected FOLDER LIST NUMBER, found {len(words)} words")
    folder, listed, number = words
    names = Path(listed).read_text().split()
    if not number.isdecimal() or int(number) >= len(names):
        raise ValueError(f"the list has {len(names)} chunks: expected a number from 0 to {len(names) - 1}")
    name = names[int(number)]
    if not (Path(folder) / "chunks" / f"{name}.json").is_file():
        raise ValueError(f"the folder {folder} does not describe it")
    return folder, name


if __name__ == "__main__":
    try:
        folder, name = chunk_of(sys.argv[1:])
    except (OSError, ValueError) as error:  # the script was started without sbatch, for example
        sys.exit(
            f"error: there is no chunk '{' '.join(sys.argv[3:])}' of work: {error}. An array job of Slurm "
            "runs this command: submit the script that --executor sbatch wrote, unchanged, with sbatch"
        )
    run_chunk(folder, name)
