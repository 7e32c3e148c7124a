"""Kill workers at random while items are computed, and count lost and repeated work.

``python benchmarks/scale_kills.py 50 --out FILE.json`` kills 50 times: nine times out of ten a worker,
otherwise the whole run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from command_line import add_out, head, parser_of, positive, write

from mini_dnn.cli import status_of
from mini_dnn.errors import MiniDnnError
from mini_dnn.measuring.machine import load

HERE = Path(__file__).parent
SECONDS = 0.005  # of an item
WHOLE = 10  # every tenth kill ends the run instead of a worker
APART = 12  # the most results between two kills


def program(folder: Path, count: int, seconds: float, executor: str = "local") -> list[str]:
    """The command that computes ``count`` items with two workers."""
    return [sys.executable, str(HERE / "scale_program.py"), executor, str(folder), str(count), str(seconds)]


def workers_of(parent: int) -> list[int]:
    """The processes that the pool of a process has started."""
    found = subprocess.run(
        ["pgrep", "-P", str(parent), "-f", "spawn_main"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]


def results(folder: Path) -> dict[str, int]:
    """The time at which each result was written."""
    return {file.stem: file.stat().st_mtime_ns for file in (folder / "results").glob("item*.json")}


def killed(folder: Path, kills: int, seed: int = 0) -> dict[str, int]:
    """Kill this often, or until all items are complete; let the same command finish, and count.

    Raises
    ------
    MiniDnnError
        The program that computes the items failed, and has printed why.
    """
    count, made, rng = kills * 3 * APART, 0, random.Random(seed)
    while made < kills and len(results(folder)) < count:
        with subprocess.Popen(program(folder, count, SECONDS)) as process:
            while process.poll() is None and made < kills:
                target = len(results(folder)) + rng.randrange(1, APART)
                while len(results(folder)) < target and process.poll() is None:
                    time.sleep(0.005)
                victims = workers_of(process.pid)
                if process.poll() is None and victims:
                    victim = process.pid if (made + 1) % WHOLE == 0 else rng.choice(victims)
                    with suppress(ProcessLookupError):  # it has ended in the meantime
                        os.kill(victim, signal.SIGKILL)
                        made += 1
            process.kill()
        if process.returncode > 0:
            raise MiniDnnError("the program with the items failed; see above")
    kept = results(folder)
    if subprocess.run(program(folder, count, 0), check=False, stdout=subprocess.DEVNULL).returncode:
        raise MiniDnnError("some items have no result after the last run; see above")
    after = results(folder)
    computed = Counter((folder / "log").read_text().split())
    return {
        "kills": made,
        "items": count,
        "results_before_the_last_run": len(kept),
        "lost": count - len(after),
        "results_written_twice": sum(after[name] != when for name, when in kept.items()),
        "begun_again_by_kill": sum(computed.values())
        - len(computed),  # had a line in the log, but no result yet
    }


def main(words: Sequence[str] | None = None) -> int:
    """Kill, print and write. Return 1 if work was lost or repeated."""
    parser = parser_of(__doc__)
    parser.add_argument("kills", type=positive, help="number of kills")
    add_out(parser)
    args = parser.parse_args(words)
    about = head(**load())
    with tempfile.TemporaryDirectory() as name:
        found = killed(Path(name), args.kills)
    print(json.dumps(found, indent=1))
    write(args.out, {**about, **found})
    return int(bool(found["lost"] or found["results_written_twice"]))


if __name__ == "__main__":
    sys.exit(status_of(main))
