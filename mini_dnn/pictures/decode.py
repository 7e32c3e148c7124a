"""Decodes picture files to pixels for a network, with Pillow."""

from __future__ import annotations

import ctypes
import errno
import io
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from mini_dnn.errors import PictureError, meant_file, reason
from mini_dnn.paths import loaded_libraries, read_regular
from mini_dnn.pictures.archives import Member
from mini_dnn.pictures.recipe import Recipe

MOST_BYTES = 256 << 20  # of a file
MOST_PIXELS = 89_478_485  # of a picture; above this limit, Pillow also warns of a decompression bomb
LARGE_PIXELS = 16_000_000  # larger pictures are decoded one at a time, which limits the memory
LONGEST = 128  # ratio of length to width: of longer strips, only the middle is resized
FIRST = ("JPEG", "PNG", "GIF", "BMP", "PPM")  # formats that are tried before all others are loaded
REFUSED = (
    "EPS",
    "WMF",
    "MPEG",
    "BUFR",
    "GRIB",
    "HDF5",
    "FITS",
)  # run other programs, or hold no still picture
DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # 16-bit modes
GREY_MODES = ("1", "L", "LA", "La")

one_large: AbstractContextManager[Any] = threading.Lock()  # held while a large picture is decoded
_loading = threading.Lock()


@cache
def suffixes() -> frozenset[str]:
    """Extensions, such as ``.jpg``, of files in a folder that count as pictures."""
    taken = _formats()
    return frozenset(suffix for suffix, name in Image.registered_extensions().items() if name in taken)


def decode(source: Path | Member | bytes, recipe: Recipe) -> np.ndarray:
    """Pixels of a picture for a network, without the normalisation.

    Parameters
    ----------
    source
        A file, a part of an archive, or the bytes of a file.
    recipe
        The recipe, of which all steps but the last are applied.

    Returns
    -------
    numpy.ndarray
        ``recipe.shape`` uint8.

    Raises
    ------
    PictureError
        The picture cannot be decoded. The message says why, and does not name the file.
    """
    if not isinstance(source, bytes):
        source = _read(source)
    if not source:
        raise PictureError("it is empty; expected a picture")
    picture = _opened(source)
    W, H = picture.size
    if W * H > MOST_PIXELS:
        raise PictureError(
            f"it has {W:,}×{H:,} pixels, and the limit is {MOST_PIXELS:,}; make it smaller, because the "
            f"network sees {recipe.crop}×{recipe.crop}"
        )
    with one_large if W * H > LARGE_PIXELS else nullcontext():
        try:
            picture.load()
        except MemoryError:
            raise
        except Exception as error:  # a decoder may raise anything for damaged data
            raise PictureError(
                f"it is truncated or damaged ({_words(error)}); download or save it again"
            ) from error
        return _pixels(picture, recipe)


def centre_crop(length: int, crop: int) -> int:
    """The first of the middle ``crop`` pixels of so many, rounded like in torchvision: halves to even."""
    return round((length - crop) / 2)


def resized_size(size: tuple[int, int], short: int) -> tuple[int, int]:
    """Width and height if the shorter one becomes ``short``; the other is truncated to a whole number."""
    W, H = size
    return (short, int(short * H / W)) if W <= H else (int(short * W / H), short)


def _read(source: Path | Member) -> bytes:
    try:
        return source.read(MOST_BYTES) if isinstance(source, Member) else read_regular(source, MOST_BYTES)
    except FileNotFoundError:
        hint = "" if isinstance(source, Member) else meant_file(source)
        raise PictureError(f"there is no such file{hint or '; check the spelling and the folder'}") from None
    except IsADirectoryError:
        raise PictureError("it is a folder; expected a picture file") from None
    except OSError as error:
        next_step = "make it smaller" if error.errno == errno.EFBIG else "expected a readable regular file"
        raise PictureError(f"it cannot be read: {reason(error)}; {next_step}") from error


def _opened(data: bytes) -> Image.Image:
    """The picture, of which only the header has been read."""
    for formats in (lambda: FIRST, _formats):
        try:
            return Image.open(io.BytesIO(data), formats=formats())
        except UnidentifiedImageError:
            continue
        except Image.DecompressionBombError:
            raise PictureError(
                f"its header claims more than {MOST_PIXELS:,} pixels; make it smaller"
            ) from None
        except Exception as error:  # a decoder may raise anything for a damaged header
            raise PictureError(
                f"its header is damaged ({_words(error)}); download or save it again"
            ) from error
    raise PictureError(
        "it is not a picture in a format that Pillow reads, such as JPEG, PNG, WebP or TIFF, or its "
        "header is damaged; convert it, or remove it"
    )


@cache
def _formats() -> tuple[str, ...]:
    with _loading:
        Image.init()
        _silence_libtiff()
        return tuple(name for name in Image.OPEN if name not in REFUSED)


def _silence_libtiff() -> None:
    """Keep libtiff from printing what is wrong with a file, because Pillow raises errors for that.

    The setting applies to all that this process reads with the same copy of the library.
    """
    for name in loaded_libraries("libtiff"):
        with suppress(OSError, AttributeError):  # the file was replaced, or only a folder has this name
            ctypes.CDLL(name).TIFFSetErrorHandler(None)


def _pixels(picture: Image.Image, recipe: Recipe) -> np.ndarray:
    with suppress(Exception):  # damaged metadata of a valid picture: it is used without rotation
        picture = ImageOps.exif_transpose(picture)
    picture = _toned(picture, "L" if recipe.channels == 1 else "RGB", recipe.background)
    picture = _resized(picture, recipe)
    left, top = (centre_crop(length, recipe.crop) for length in picture.size)
    picture = picture.crop((left, top, left + recipe.crop, top + recipe.crop))
    pixels = np.array(picture).reshape(recipe.shape)
    return 255 - pixels if recipe.invert else pixels


def _toned(picture: Image.Image, mode: str, background: int) -> Image.Image:
    """The picture in grey (``"L"``) or RGB, opaque, with 8 bits."""
    if picture.mode in DEEP:
        picture = _of_8_bits(picture)
    if picture.mode == "F":
        raise PictureError("its pixels are floats with an unknown range; save it with 8 or 16 bits")
    try:
        return _opaque(picture, mode, background)
    except ValueError as error:
        raise PictureError(
            f"its colour mode is {picture.mode}, which cannot be converted to {mode}; save it as RGB"
        ) from error


def _opaque(picture: Image.Image, mode: str, background: int) -> Image.Image:
    if picture.has_transparency_data:
        opaque = picture.convert("RGBA")
        ground = Image.new("RGBA", opaque.size, (background,) * 3 + (255,))
        picture = Image.alpha_composite(ground, opaque)
    if mode == "L" and picture.mode not in GREY_MODES:
        picture = picture.convert("RGB")  # some modes cannot be converted to grey directly
    return picture if picture.mode == mode else picture.convert(mode)


def _of_8_bits(picture: Image.Image) -> Image.Image:
    deep = np.asarray(picture)
    if deep.min() < 0 or deep.max() > 65535:
        raise PictureError("its pixels have 32 bits and an unknown range; save it with 8 or 16 bits")
    return Image.fromarray(((deep.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8))


def _resized(picture: Image.Image, recipe: Recipe) -> Image.Image:
    size = resized_size(picture.size, recipe.resize)
    if size == picture.size:
        return picture
    if max(size) <= LONGEST * recipe.resize:
        return picture.resize(size, Image.Resampling.BILINEAR)
    # The whole strip could fill the memory.
    (W, H), (w, h) = picture.size, size
    along, full = (W, w) if w > h else (H, h)
    start = centre_crop(full, recipe.crop)
    first, last = start * along / full, (start + recipe.crop) * along / full
    box = (first, 0, last, H) if w > h else (0, first, W, last)
    cut = (recipe.crop, h) if w > h else (w, recipe.crop)
    return picture.resize(cut, Image.Resampling.BILINEAR, box=box)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
