"""Findings of checked mode about threads that wait for each other, and about blocks that do not end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from mini_dnn.device.cures import CURES
from mini_dnn.device.finding import Finding, Party, Place

STUCK_PLACE = re.compile(r"\(([^():]*):(\d+)(?::\d+)?\)")
THREADS = re.compile(r" *threads (?P<threads>[-\d, .]+) (?P<where>.*)")
MOST_NOTES = 8  # places of threads in a finding about a block that does not end
ONE = {"wait": "waits", "run": "runs", "have": "has"}  # what one thread does
VERB = re.compile(rf"\b(?:{'|'.join(ONE)})\b")
RUNS = re.compile(" runs? at ")
ABSENT = re.compile(r"(?P<call>\S+) \S+ for the lanes of mask (?P<mask>\w+); absent: (?P<lanes>[-\d, .]+)")


def explain_stuck(text: str, source: Path, kernel: str, me: Party) -> Finding:
    """Return the finding for a block whose threads wait at different places, or do not wait at all."""
    waits = _waits(text)
    places = places_in(waits, source)
    own = Party(places[0] if places else None, me.block, ())
    other = Party(places[1], me.block, ()) if len(places) > 1 else None
    found = [match for line in waits if (match := ABSENT.search(line))]
    if found:  # in a branch, a shuffle is more likely than __syncwarp, at which all lanes arrive
        absent = min(found, key=lambda match: match["call"] == "__syncwarp")
        own = replace(own, place=next(iter(places_in([absent[0]], source)), None))
        other = next((Party(p, me.block, ()) for p in places if p != own.place), None)
        what = (
            f"{absent['call']} waits for all lanes of its mask {absent['mask']}, "
            f"but lanes {absent['lanes']} never reach it"
        )
        cure = CURES["group" if "::" in absent["call"] else "warp-mask"]
        return Finding("warp-mask", what, kernel, own, "", other, cure, waits)
    what = "not all threads of the block reach the same barrier"
    return Finding("divergence", what, kernel, own, "", other, CURES["divergence"], waits)


def explain_warp(text: str, source: Path, kernel: str, me: Party) -> Finding:
    """Return the finding for a warp function that lanes call wrongly. The text says how."""
    places = places_in([text], source)
    what = STUCK_PLACE.sub("", text, count=1).replace("  ", " ")
    cures = {"wgmma": "product", "setmaxnreg": "registers"}
    cure = next((cures[word] for word in cures if what.startswith(word)), "warp-mask")
    cure = "tile" if "same tile" in what else "group" if "_group" in what or "block_tile" in what else cure
    me = replace(me, place=places[0] if places else None)
    return Finding("warp-mask", what, kernel, me, cure=CURES[cure])


def explain_endless(what: str, text: str, source: Path, kernel: str, me: Party) -> Finding:
    """Return the finding for a block that does not end. The text says where its threads are."""
    waits = _waits(text)
    runs = places_in([line for line in waits if RUNS.search(line)], source) or places_in(waits, source)
    own = replace(me, place=runs[0] if runs else None)
    what = f"a block {what} and did not finish: an endless loop, or threads that wait for each other"
    more = len(waits) - MOST_NOTES
    notes = waits if more <= 1 else (*waits[:MOST_NOTES], f"other threads are at {more} other places")
    return Finding("endless", what, kernel, own, cure=CURES["endless"], notes=notes)


def _waits(text: str) -> tuple[str, ...]:
    """A line for each group of threads that are at one place."""
    threads: dict[str, list[str]] = {}
    for line in text.strip("\n").splitlines():
        match = THREADS.match(line)
        if match:
            threads.setdefault(match["where"], []).append(match["threads"])
    return tuple(_who(", ".join(numbers), where) for where, numbers in threads.items())


def _who(numbers: str, where: str) -> str:
    if numbers.isdigit():
        return f"thread {numbers} {VERB.sub(lambda verb: ONE[verb[0]], where, count=1)}"
    return f"threads {numbers} {where}"


def places_in(lines: Iterable[str], source: Path) -> list[Place]:
    """The lines of the kernel's files that a text names in brackets: ``(kernel.cu:12)``."""
    matches = (match for line in lines for match in STUCK_PLACE.finditer(line))
    found = (Place.at(source, match[1], int(match[2])) for match in matches)
    return [place for place in found if place]
