"""Archives of pictures: ``.tar`` files, as WebDataset and others write them.

The headers of an archive are read in order. The worker that decodes a picture reads its bytes directly, so
several workers can read from one archive.
"""

from __future__ import annotations

import errno
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.errors import PictureError, reason
from mini_dnn.paths import open_regular

ARCHIVES = (".tar",)
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
NO_BYTES = (
    "the archive has only a link to it, or a sparse or special file; create the archive with tar "
    "--dereference --hard-dereference"
)


@dataclass(frozen=True)
class Member:
    """Bytes within an archive."""

    archive: Path
    offset: int
    size: int

    def read(self, most_bytes: int) -> bytes:
        """The bytes.

        Raises
        ------
        OSError
            The archive cannot be read or is too short, or there are more than ``most_bytes``.
        """
        if self.size > most_bytes:
            why = f"it has {self.size:,} bytes; the limit is {most_bytes:,}"
            raise OSError(errno.EFBIG, why, str(self.archive))
        with open_regular(self.archive) as file:
            file.seek(self.offset)
            found = file.read(self.size)
        if len(found) < self.size:
            raise OSError(errno.EIO, "the archive is truncated: it ends in this picture", str(self.archive))
        return found


def refused(name: str) -> str:
    """The reason why an archive with this name is not supported; empty for other names."""
    if not name.lower().endswith(COMPRESSED):
        return ""
    return (
        f"{name} is compressed, which prevents random access to its pictures; convert it to a .tar file, "
        "which is hardly larger, because pictures are already compressed"
    )


def members(path: Path) -> Iterator[tuple[str, Member | PictureError]]:
    """Names of the files in an archive, and the positions of their bytes; an error for links and the like.

    Raises
    ------
    PictureError
        It cannot be read. The members before the damaged part were yielded.
    """
    try:
        with open_regular(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            while (found := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
                if found.size < 0:  # the next header could be one that was read before
                    raise tarfile.ReadError("a size is negative")
                if found.isreg() and not found.issparse():
                    yield found.name, Member(path, found.offset_data, found.size)
                elif not found.isdir():
                    yield found.name, PictureError(NO_BYTES)
            file.seek(archive.offset)
            if any(file.read(tarfile.BLOCKSIZE)):  # only zeros end an archive, but tarfile stops here, too
                raise tarfile.ReadError("a header is not valid")
    except (tarfile.TarError, ValueError) as error:  # the latter for numbers in extended headers
        raise PictureError(
            f"the archive is truncated or damaged ({error}); download it or create it again"
        ) from error
    except OSError as error:
        raise PictureError(
            f"the archive cannot be read: {reason(error)}; expected a readable .tar file"
        ) from error
