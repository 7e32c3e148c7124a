"""Pictures of all kinds of files become the pixels of torchvision, and damaged files are named."""

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from picture_samples import PNG, SMALL, noise, saved
from PIL import Image

from mini_dnn.errors import PictureError, ShapeError
from mini_dnn.pictures.decode import decode, resized_size
from mini_dnn.pictures.recipe import FASHION, IMAGENET, Recipe


def shrunk(x: np.ndarray, length: int) -> np.ndarray:
    """Resize rows of x (H, W, C) uint8 to ``length`` pixels: bilinear, antialiased, by the definition.

    A pixel is the mean of the pixels within one coarse pixel of its centre, with weights that decrease
    linearly. Weights are multiples of 2^-22, and sums are rounded to bytes, halves up.
    """
    scale = x.shape[1] / length
    reach = max(scale, 1.0)
    centres = (np.arange(length)[:, None] + 0.5) * scale
    weights = np.maximum(0, 1 - np.abs(np.arange(x.shape[1]) + 0.5 - centres) / reach)
    weights = np.floor(weights / weights.sum(axis=1, keepdims=True) * 2**22 + 0.5)
    return np.floor(weights @ x / 2**22 + 0.5).astype(np.uint8)  # whole numbers, which float64 adds exactly


def by_definition(x: np.ndarray, recipe: Recipe) -> np.ndarray:
    """torchvision's Resize and CenterCrop of x (H, W, C) uint8."""
    H, W = x.shape[:2]
    short = recipe.resize
    w, h = (short, int(short * H / W)) if W <= H else (int(short * W / H), short)
    x = shrunk(x, w)
    x = shrunk(x.transpose(1, 0, 2), h).transpose(1, 0, 2)
    top, left = round((h - recipe.crop) / 2), round((w - recipe.crop) / 2)
    return x[top : top + recipe.crop, left : left + recipe.crop]


@pytest.mark.parametrize(
    ("recipe", "size"),
    [
        (IMAGENET, (375, 500)),  # a landscape photograph, whose width becomes 341.33
        (IMAGENET, (401, 257)),  # portrait, nearly of the final size, with an odd height
        (IMAGENET, (31, 20)),  # enlarged
        (SMALL, (16, 16)),  # not resized
        (SMALL, (16, 19)),  # the crop begins at 3.5, which is rounded to 4
        (SMALL, (17, 16)),  # at 2.5, which is rounded to 2
        (SMALL, (1, 1)),
        (SMALL, (3, 300)),
        (Recipe(28, 28), (28, 30)),
    ],
)
def test_pixels_are_torchvisions(recipe: Recipe, size: tuple[int, int]) -> None:
    x = noise(*size)
    found = decode(saved(x), recipe)
    assert found.shape == recipe.shape
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, by_definition(x, recipe))


@pytest.mark.parametrize("size", [(2, 999), (300, 1)])
def test_of_a_long_strip_only_the_middle_is_resized(size: tuple[int, int]) -> None:
    """The middle begins at a fraction of a pixel, which Pillow rounds."""
    x = noise(*size)
    found = decode(saved(x), SMALL).astype(int)
    assert np.abs(found - by_definition(x, SMALL)).max() <= 1


def test_known_numbers() -> None:
    """The expected numbers were computed on paper."""
    x = np.array([[0, 90, 180]] * 3, np.uint8)
    # scale 3: the centre is 1.5, and the pixels' distances 1, 0 and 1 of 3: weights 2/3, 1, 2/3 of 7/3
    middle = round((0 * 2 + 90 * 3 + 180 * 2) / 7)
    assert decode(saved(x), Recipe(1, 1, (0.0,), (1.0,))).item() == middle
    # to 2 of 4: reach 2, centre 1; distances 0.5, 0.5, 1.5 (and 2.5) of 2: weights 3, 3, 1 of 7
    x = np.array([[10, 20, 30, 40]] * 4, np.uint8)
    found = decode(saved(x), Recipe(2, 2, (0.0,), (1.0,)))[0, :, 0]
    assert found.tolist() == [round((30 + 60 + 30) / 7), round((20 + 90 + 120) / 7)]


@pytest.mark.parametrize(
    ("size", "short", "expected"),
    [
        ((500, 375), 256, (341, 256)),
        ((375, 500), 256, (256, 341)),
        ((7, 3), 28, (65, 28)),
        ((9, 9), 4, (4, 4)),
    ],
)
def test_the_longer_side_is_cut_off(size: tuple[int, int], short: int, expected: tuple[int, int]) -> None:
    assert resized_size(size, short) == expected


def test_normalised() -> None:
    pixels = noise(2 * 12, 12).reshape(2, 12, 12, 3)
    found = SMALL.normalised(pixels)
    assert found.shape == (2, 3, 12, 12)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    expected = (pixels.astype(np.float64) / 255 - SMALL.mean) / SMALL.deviation
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_the_picture(orientation: int) -> None:
    """A camera that is held in this way writes these rows and columns."""
    upright = noise(20, 24)
    turn = {  # from the upright picture to the content of the file
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.transpose(1, 0, 2),
        6: lambda x: np.rot90(x),
        7: lambda x: x[::-1, ::-1].transpose(1, 0, 2),
        8: lambda x: np.rot90(x, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(np.ascontiguousarray(turn(upright)), exif=exif.tobytes())
    np.testing.assert_array_equal(decode(data, SMALL), by_definition(upright, SMALL))


def test_damaged_exif_is_passed_over() -> None:
    x = noise(16, 16)
    data = saved(x, exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff nonsense")
    np.testing.assert_array_equal(decode(data, SMALL), by_definition(x, SMALL))


def kinds_of_pictures() -> dict[str, tuple[bytes, np.ndarray]]:
    """Files of many kinds, 16 by 16, and the RGB pixels that each of them shows."""
    rgb, grey = noise(16, 16), noise(16, 16, 1)
    shown = np.repeat(grey[..., None], 3, axis=2)
    alpha = noise(16, 16, 1, seed=1)
    part = alpha[..., None] / 255
    on_white = np.rint(rgb * part + 255 * (1 - part)).astype(np.uint8)
    palette = Image.fromarray(grey % 4).convert("P")
    palette.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90, 200, 210, 220])
    colours = np.array([[10, 20, 30], [40, 50, 60], [70, 80, 90], [200, 210, 220]], np.uint8)[grey % 4]
    holed = colours.copy()
    holed[grey % 4 == 2] = 255
    cmyk = noise(16, 16, 4)
    ink = cmyk.astype(np.float64)
    return {
        "grey": (saved(grey), shown),
        "black and white": (
            saved(Image.fromarray(grey > 127)),
            np.where(shown > 127, 255, 0).astype(np.uint8),
        ),
        "palette": (saved(palette), colours),
        "palette with a transparent colour": (saved(palette, transparency=2), holed),
        "16 bits": (saved(grey.astype(np.uint16) * 257), shown),
        "16 bits in a TIFF": (saved(grey.astype(np.uint16) * 257, "TIFF"), shown),
        "RGBA": (saved(np.dstack([rgb, alpha])), on_white),
        "grey with alpha": (saved(np.dstack([grey, np.zeros_like(grey)])), np.full_like(shown, 255)),
        "CMYK": (
            saved(Image.frombytes("CMYK", (16, 16), cmyk.tobytes()), "TIFF"),
            np.rint((255 - ink[..., :3]) * (255 - ink[..., 3:]) / 255).astype(np.uint8),
        ),
        "WebP": (saved(rgb, "WEBP", lossless=True), rgb),
        "GIF": (saved(palette, "GIF"), colours),
        "BMP": (saved(rgb, "BMP"), rgb),
    }


@pytest.mark.parametrize("kind", kinds_of_pictures())
def test_kinds_of_pictures(kind: str) -> None:
    data, shown = kinds_of_pictures()[kind]
    found = decode(data, Recipe(16, 16)).astype(int)
    assert np.abs(found - shown).max() <= 1, kind  # Pillow blends in integers
    luma = shown @ np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
    grey = decode(data, Recipe(16, 16, (0.0,), (1.0,)))[..., 0]
    assert np.abs(grey - luma).max() <= 1.6, kind


def test_background_and_inverted() -> None:
    """Nothing is guessed: the recipe says that the network was trained on light garments on black."""
    clear = saved(np.zeros((28, 28, 4), np.uint8))
    assert (decode(clear, FASHION) == 0).all()
    assert (decode(clear, Recipe(28, 28, (0.0,), (1.0,), invert=True, background=255)) == 0).all()
    assert (decode(clear, Recipe(28, 28, (0.0,), (1.0,))) == 255).all()
    x = noise(28, 28, 1)
    np.testing.assert_array_equal(decode(saved(x), FASHION)[..., 0], x)
    inverted = Recipe(28, 28, (0.0,), (1.0,), invert=True)
    np.testing.assert_array_equal(decode(saved(x), inverted)[..., 0], 255 - x)


def png_of_claimed_size(W: int, H: int) -> bytes:
    """A PNG whose header claims a size that exceeds any memory."""
    head = struct.pack(">IIBBBBB", W, H, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 10)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


JPEG = saved(noise(64, 64), "JPEG")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # `Feed` ignores it, too
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty; expected a picture"),
        (b"no picture at all, but words" * 9, "it is not a picture in a format that Pillow reads"),
        (JPEG[: len(JPEG) // 2], "truncated or damaged"),
        (PNG[: len(PNG) // 2], "truncated or damaged"),
        (PNG[:20], "damaged"),
        (PNG[:100] + b"\0" * 200 + PNG[300:], "damaged"),
        (png_of_claimed_size(100_000, 100_000), "pixels; make it smaller"),
        (png_of_claimed_size(10_000, 10_000), "10,000×10,000 pixels, and the limit is 89,478,485"),
        (saved(noise(4, 4, 1).astype(np.float32), "TIFF"), "range"),
        (saved(noise(4, 4, 1).astype(np.int32) * 70_000, "TIFF"), "range"),
        # No interpreter may run
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it is not a picture"),
    ],
    ids=range(11),
)
def test_what_is_no_picture_is_refused_in_words(data: bytes, says: str) -> None:
    with pytest.raises(PictureError, match=says):
        decode(data, SMALL)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_no_cut_or_changed_byte_is_more_than_a_picture_error() -> None:
    rng = np.random.default_rng(0)
    for whole in (
        JPEG,
        PNG,
        saved(noise(9, 9), "WEBP"),
        saved(noise(9, 9), "TIFF"),
        saved(noise(9, 9), "GIF"),
    ):
        for _ in range(200):
            data = bytearray(whole[: rng.integers(1, len(whole) + 1)])
            data[rng.integers(len(data))] = rng.integers(256)
            with suppress(PictureError):
                assert decode(bytes(data), SMALL).shape == SMALL.shape


def test_only_the_error_tells_of_a_damaged_tiff(capfd: pytest.CaptureFixture[str]) -> None:
    """The library that Pillow uses would print lines of its own."""
    whole = saved(noise(64, 64), "TIFF", compression="tiff_lzw")
    refusals = 0
    for at in range(8, 400, 20):
        with suppress(PictureError):
            decode(whole[:at] + b"\xff" + whole[at + 1 :], SMALL)
            continue
        refusals += 1
    assert refusals
    assert capfd.readouterr() == ("", "")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    for path, says in ((tmp_path / "none.jpg", "no such file"), (tmp_path / "pipe.jpg", "found a pipe")):
        with pytest.raises(PictureError, match=says):
            decode(path, SMALL)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"crop": 0}, "crop 1 to 4096"),
        ({"resize": 100}, "no square of 224"),
        ({"mean": [0.5]}, "one number each for grey"),
        ({"mean": 0.5}, "one number each for grey"),
        ({"mean": [0.5, 0.5], "deviation": [1, 1]}, "three for RGB"),
        ({"mean": [0.5, 0.5, float("nan")]}, "must contain only numbers"),
        ({"mean": [0.5, 0.5, 10**400]}, "must contain only numbers that fit fp32"),
        ({"deviation": [1, 0, 1]}, "larger than 0"),
        ({"deviation": [1, 1e-60, 1]}, "larger than 0"),
        ({"invert": 1}, "invert must be true or false"),
        ({"background": 256}, "0 to 255"),
        ({"colour": "grey"}, "no field colour"),
    ],
)
def test_a_wrong_recipe_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        Recipe.from_dict({**IMAGENET.to_dict(), **fields})


def test_a_recipe_goes_through_json() -> None:
    for recipe in (IMAGENET, FASHION, SMALL):
        assert Recipe.from_dict(recipe.to_dict()) == recipe
