"""Downloads from several mirrors, each file checked by its MD5."""

from __future__ import annotations

import logging
import queue
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mini_dnn.errors import DataError, reason
from mini_dnn.paths import replacing

PROBE_S = 4.0  # a server that has not answered in this time counts as unreachable
STALL_S = 10.0  # a download without data for this time has failed
_log = logging.getLogger(__name__)


@contextmanager
def download(wanted: Mapping[str, str], mirrors: Sequence[str], folder: Path) -> Iterator[tuple[Path, str]]:
    """Download files into a folder, from the first mirror that has all of them.

    A file that is already in the folder with the right MD5 is not downloaded again. A file gets its name
    only when it is complete and its MD5 is right.

    Parameters
    ----------
    wanted : mapping of str to str
        File names with their MD5 sums, or with other hashes: ``sha256:...``.
    mirrors : sequence of str
        URLs of folders, each ending in "/".
    folder : Path
        The folder that keeps the files. If it is not writable, they are in a temporary folder as long as the
        context lasts, and the logger prints a warning.

    Yields
    ------
    (Path, str)
        The folder with the files, and the mirror.

    Raises
    ------
    DataError
        No mirror has all of them; the message has the reason for each mirror. Or a file cannot be written.
    """
    with _writable(folder) as place:
        reasons = []
        for mirror in mirrors:
            try:
                _probe(mirror + next(iter(wanted)))
                for name, known in wanted.items():
                    _fetch(mirror + name, known, place)
            except (OSError, ValueError) as error:  # ValueError: a wrong file
                reasons.append(f"{mirror} {_reason(error)}")
            else:
                yield place, mirror
                return
        raise DataError("; ".join(reasons))


def _fetch(url: str, known: str, folder: Path) -> None:
    # Imported here, because importing them takes a seventh of a second, and they are rarely needed
    import pooch
    import requests

    path = folder / url.rsplit("/", 1)[1]
    algorithm, wanted = known.split(":") if ":" in known else ("md5", known)
    with suppress(OSError):  # missing or unreadable
        if pooch.file_hash(str(path), algorithm) == wanted:
            return
    pooch.get_logger().info("Downloading %s to %s", url, path)
    show = sys.stderr.isatty()
    downloader = pooch.HTTPDownloader(progressbar=show, chunk_size=1 << 16, timeout=(PROBE_S, STALL_S))
    try:
        with replacing(path) as temporary:
            downloader(url, str(temporary), None)
            found = pooch.file_hash(str(temporary), algorithm)
            if found != wanted:
                raise ValueError(
                    f"sent a wrong file: the {algorithm} of {path.name} is {found}, not {wanted}"
                )
    except requests.RequestException:  # a subclass of OSError, but the mirror's fault
        raise
    except OSError as error:
        raise DataError(f"{path} cannot be written: {reason(error)}") from error


def _probe(url: str) -> None:
    """Raise an error unless the server answers within `PROBE_S` seconds.

    The time-outs of `requests` apply to one address, but not to the look-up of the name. Behind a firewall
    that drops all packets, several addresses and name servers add up to minutes. Therefore, a thread asks,
    and it is abandoned if it hangs.
    """
    import requests

    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            requests.head(url, timeout=PROBE_S)
            answers.put(None)
        except (OSError, ValueError) as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        failure = answers.get(timeout=PROBE_S)
    except queue.Empty:
        failure = requests.Timeout()
    if isinstance(failure, requests.Timeout):
        raise TimeoutError(f"did not answer within {PROBE_S:g} s")
    if failure is not None:
        raise failure


def _reason(error: Exception) -> str:
    """What went wrong, without the URL that urllib3 repeats in every message about a connection."""
    import requests
    import urllib3

    cause = error.args[0] if error.args else None
    if isinstance(cause, urllib3.exceptions.ReadTimeoutError):
        return f"sent nothing for {STALL_S:g} s"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "ended the connection before the file was complete"
    if isinstance(error, requests.ConnectionError):
        return f"cannot be reached ({type(getattr(cause, 'reason', error)).__name__})"
    return str(error)


@contextmanager
def _writable(folder: Path) -> Iterator[Path]:
    """Yield the folder if it is writable, otherwise a temporary one."""
    problem = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = error
    if problem is None:
        yield folder
        return
    _log.warning("%s cannot be written (%s); the download will not be kept", folder, problem)
    with tempfile.TemporaryDirectory(prefix="mini_dnn-") as temporary:
        yield Path(temporary)
