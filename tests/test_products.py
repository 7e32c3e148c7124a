"""The picture of products of random sizes, and the plans of chains of products."""

import json
from pathlib import Path

import products
import products_picture

from mini_dnn.device import open_device
from mini_dnn.running.execute import Execution
from mini_dnn.variant import find


def test_ratios_are_of_medians(tmp_path: Path) -> None:
    text = "8,16,32,fp16,fp16"
    rows = [
        {"problem": text, "variant": "a", "mode": "random", "us": [4.0, 5.0, 60.0]},
        {"problem": text, "variant": "b", "mode": "random", "us": [2.0, 2.5, 1.0]},
        {"problem": "1,1,1,fp16,fp16", "variant": "a", "mode": "random", "us": [1.0]},
    ]
    file = tmp_path / "random.json"
    file.write_text(json.dumps({"rows": rows}))
    assert products_picture.ratios(file, "a", "b") == [(2 * 8 * 16 * 32, 2.5)]
    assert (
        products_picture.main(
            [
                str(file),
                f"again={file}",
                "--picture",
                str(tmp_path / "p.svg"),
                "--base",
                "a",
                "--variant",
                "b",
            ]
        )
        == 0
    )
    assert (tmp_path / "p.svg").read_bytes().startswith(b"<?xml")


def test_late_plans_wait_for_what_is_ahead() -> None:
    planned = find("gemm/v8").planned(products.OPERATION.parse("100,100,100,fp16,fp16"), 232448)
    assert any(launch.early for launch in planned.launches)
    assert not any(launch.early for launch in products.late(planned).launches)


def test_sets_are_more_than_the_cache() -> None:
    for text in ("4096,4096,4096,fp16,fp16", "512,512,512,fp16,fp16"):
        problem = products.OPERATION.parse(text)
        count = products.sets_of(problem)
        assert count == products.MOST_SETS or count * problem.min_bytes > products.MOVED


def test_products_of_a_chain_share_scratch_and_nothing_else() -> None:
    device = open_device("emulator")
    planned = find("gemm/v10").planned(products.OPERATION.parse("512,512,8192,fp16,fp16"), 232448)
    module = device.compile(planned.source, planned.defines)
    first, second = (Execution(planned, module, device) for _ in range(2))
    products.share(second, first, planned.scratch)
    same = {name for name, buffer in second.buffers.items() if buffer is first.buffers[name]}
    assert same == set(planned.scratch) == {"partial"}
    second.free()
    first.free()
