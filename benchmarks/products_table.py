"""Write the table that compares ``gemm`` with cuBLAS into ``ladders/gemm/README.md``.

``python benchmarks/products_table.py`` reads the files of ``products.py`` and ``chains.py`` that `NOW` and
`EARLIER` name. A ratio is cuBLAS's time divided by that of ``gemm``, so above 1 ``gemm`` is faster.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from command_line import parser_of, read

from mini_dnn import ops
from mini_dnn.cli import status_of
from mini_dnn.errors import DataError
from mini_dnn.paths import ROOT
from mini_dnn.report.readmes import replaced
from mini_dnn.report.tables import number

RESULTS = Path(__file__).parent / "results" / "products"
README = ROOT / "ladders" / "gemm" / "README.md"
MARKER = "products"
BASE = "gemm/cublas"
NOTHING = "–"
CUBES = (128, 256, 512, 1024, 2048, 4096, 8192)
OTHERS = ((512, 512, 8192), (1, 4096, 4096), (64, 4096, 4096), (1000, 1001, 999), (4095,) * 3, (8191,) * 3)
SIZES = (*((side,) * 3 for side in CUBES), *OTHERS)

Times = Mapping[str, float]  # microseconds a product: cuBLAS as `BASE`, ours as "" and, early, as "early"


@dataclass(frozen=True)
class Source:
    """The files of one GPU: products in bursts, in chains and, if measured, without rests."""

    products: str
    chains: str
    sustained: str | None = None


NOW = Source("h100-fp16.json", "h100-chains.json", "h100-sustained.json")
EARLIER = Source("h200-fp16.json", "h200-fp16-chains.json")


def medians(name: str | None, field: str, mode: str) -> Mapping[str, Times]:
    """Return the median times of a file's problems or chains in one mode. Without a name, there are none.

    Raises
    ------
    DataError
        The file cannot be read, or a result was wrong.
    """
    found: dict[str, dict[str, float]] = {}
    for row in read(RESULTS / name)["rows"] if name else ():
        if "wrong" in row:
            raise DataError(
                f"{name}: {row['variant']} at {row[field]} is wrong: {row['wrong']}. Correct the variant and "
                "measure again"
            )
        if row["mode"] == mode:
            ours = "early" if row["variant"].endswith(" early") else ""
            key = BASE if row["variant"] == BASE else ours
            found.setdefault(row[field], {})[key] = statistics.median(row["us"])
    return found


def ratio(times: Times | None, ours: str) -> str:
    """How many times as fast as cuBLAS, or a dash."""
    return f"{times[BASE] / times[ours]:.2f}" if times and ours in times else NOTHING


def chain_of(m: int, n: int, k: int) -> str:
    """The name of the chain whose products have this size, in `chains.py`."""
    return f"{m}x{n}" if n == k else ""


def name_of(m: int, n: int, k: int) -> str:
    """The size in words."""
    return f"{m}³" if m == n == k else f"{m} × {n} × {k}"


def table() -> str:
    """The table in Markdown.

    Raises
    ------
    DataError
        A product has not been measured in order, early and with cuBLAS.
    """
    parse = ops.find("gemm").parse
    products, earlier = (medians(one.products, "problem", "burst") for one in (NOW, EARLIER))
    chains, of_earlier = medians(NOW.chains, "chain", "burst"), medians(EARLIER.chains, "chain", "burst")
    sustained = medians(NOW.sustained, "problem", "sustained")
    lines = [
        "| product | cuBLAS, H100 | `gemm`: in order, early | ratios | chain | sustained "
        "| earlier code, H200: in order, early; chain |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for size in SIZES:
        problem = parse(",".join(map(str, (*size, "fp16", "fp16")))).text
        now, before, chain = products.get(problem, {}), earlier.get(problem), chain_of(*size)
        if missing := {BASE, "", "early"} - now.keys():
            names = ", ".join(sorted(name or "gemm in order" for name in missing))
            raise DataError(f"{NOW.products} has no time of {names} at {problem}; measure it by products.py")
        in_chain = ratio(of_earlier.get(chain), "early")
        cells = [
            name_of(*size),
            f"{number(now[BASE])} us",
            f"{number(now[''])}, {number(now['early'])} us",
            f"{ratio(now, '')}, {ratio(now, 'early')}",
            ratio(chains.get(chain), "early"),
            ratio(sustained.get(problem), ""),
            f"{ratio(before, '')}, {ratio(before, 'early')}" + f"; {in_chain}" * (in_chain != NOTHING),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Write the README."""
    parser_of(__doc__).parse_args(words)
    text = README.read_text(encoding="utf-8")
    README.write_text(replaced(text, MARKER, table(), README), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
