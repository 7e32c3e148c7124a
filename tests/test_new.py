"""The verb new: a folder that is copied from a variant."""

from pathlib import Path

import pytest
from convolutions import planned, solved

from mini_dnn.cli import main
from mini_dnn.device import Device
from mini_dnn.errors import UsageError, VariantError
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant, find, mine, names
from mini_dnn.variant.scaffold import IDEA, create, is_own

Output = pytest.CaptureFixture[str]
KERNELS = [name for name in names() if find(name).plan]


class TestNew:
    @pytest.mark.parametrize("source", ["m2", "m3/sweep"])
    def test_a_new_variant_runs_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_emulator: Device, source: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["new", "./my_idea", "--from", source]) == 0
        variant = find("./my_idea")
        assert (variant.folder, variant.parent, variant.idea) == (
            tmp_path / "my_idea",
            find(source).name,
            IDEA,
        )
        assert variant.source.read_text().startswith("// my_idea: ")
        assert (tmp_path / "my_idea/variant.py").read_text().startswith('"""my_idea: ')
        assert solved(variant, ConvShape(2, 2, 9, 11, 3, 3, 2), quick_emulator).ok

    @pytest.mark.parametrize("name", KERNELS)
    def test_every_variant_can_be_a_parent(self, tmp_path: Path, name: str) -> None:
        source = find(name)
        variant = find(create(str(tmp_path / "mine"), source))
        assert (variant.parent, variant.idea, variant.precision) == (name, IDEA, source.precision)
        taken = [p for p in source.operation.course.values() if not source.limit_for(p)]
        problem = taken[-1].with_batch(100)
        problem = taken[-1] if source.limit_for(problem) else problem
        assert planned(variant, problem).steps == planned(source, problem).steps

    def test_a_slash_at_the_end_changes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        def create_nothing(name: str, source: Variant) -> Path:
            asked.append(name)
            return source.folder

        monkeypatch.setattr("mini_dnn.cli.new.create", create_nothing)
        assert main(["new", "my_idea/", "--from", "m1"]) == 0
        assert asked == ["my_idea"]

    def test_next_commands(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
        monkeypatch.chdir(tmp_path)
        main(["new", "./my idea", "--from", "m2"])
        text = capsys.readouterr().out
        assert "run.py --impl 'my idea' --device emulator --batch 100\n" in text
        assert "run.py --impl 'my idea' --device emulator --batch 100 --check\n" in text
        assert "run.py diff 'my idea'\n" in text

    def test_next_commands_of_a_network(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
    ) -> None:
        monkeypatch.chdir(tmp_path)
        main(["new", "./mine", "--from", "networks/lenet/whole"])
        assert "run.py run --impl " in (text := capsys.readouterr().out)
        assert "mine --device emulator --batch 100 --check\n" in text

    def test_never_overwrites(self, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        with pytest.raises(UsageError, match="mine already exists, and was not changed"):
            create(str(tmp_path / "mine"), find("m2"))
        with pytest.raises(UsageError, match="'m2/unroll_gemm' is already a variant"):
            create("m2/unroll_gemm", find("m1"))

    @pytest.mark.parametrize("name", ["my_idea", "m3/my_idea", "softmax/my_idea"])
    def test_a_plain_name_goes_to_the_users_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """There git and the tests of this repository ignore it."""
        source = find("m2")
        for module in ("scaffold", "folders"):
            monkeypatch.setattr(f"mini_dnn.variant.{module}.ROOT", tmp_path)
        folder = create(name, source)
        assert folder == tmp_path / "mine" / name
        assert (folder / "kernel.cu").read_text().startswith(f"// mine/{name}: ")
        assert (names(), mine()) == ([], [f"mine/{name}"])
        assert find(name).name == find(f"mine/{name}").name == f"mine/{name}"
        with pytest.raises(UsageError, match="already exists"):
            create(name, source)

    @pytest.mark.parametrize("name", ["./x", "milestones/m3/x", "/tmp/x", "~/x", "some/x", "../m3/x"])
    def test_a_path_is_a_path(self, name: str) -> None:
        assert not is_own(name)

    def test_host(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="m1/cpu runs on the host and has no kernel"):
            create(str(tmp_path / "mine"), find("cpu"))

    @pytest.mark.parametrize("name", ["m3/fp32_split", "layers/fused"])
    def test_a_kernel_that_includes_another_becomes_its_text(
        self, tmp_path: Path, quick_emulator: Device, name: str
    ) -> None:
        """The copy can be changed, and it compiles wherever it is moved."""
        source = find(name)
        folder = create(str(tmp_path / "mine"), source)
        text = (folder / "kernel.cu").read_text()
        assert text.startswith("// mine: ")
        assert (find("layers/custom").source.read_text().rstrip("\n")) in text
        elsewhere = find(folder.rename(tmp_path / "elsewhere"))
        layer = source.operation.course["conv1"].with_batch(2)
        quick_emulator.compile(elsewhere.source, elsewhere.defines_for(layer))

    def write(self, folder: Path, call: str, kernel: str = "") -> Variant:
        folder.mkdir(parents=True)
        (folder / "kernel.cu").write_text(kernel)
        (folder / "variant.py").write_text(
            f"from mini_dnn.variant import Variant\nVARIANT = {call}\n", encoding="utf-8"
        )
        return find(folder)

    @pytest.mark.parametrize(
        "call",
        [
            'Variant("conv2d", plan=lambda s: [], idea="µs × 2 → 1", precision="tf32")',
            'Variant("conv2d", "µs × 2 → 1", precision="tf32", plan=(lambda s: []))',
            '(  # a page\x0c break\n  Variant("conv2d", "x", precision="tf32", plan=(lambda s: []))\n)',
        ],
    )
    def test_no_parent_and_an_idea_beyond_ascii(self, tmp_path: Path, call: str) -> None:
        source = self.write(tmp_path / "one", call)
        variant = find(create(str(tmp_path / "two"), source))
        assert (variant.parent, variant.idea, variant.precision) == (str(tmp_path / "one"), IDEA, "tf32")

    def test_no_call_to_edit(self, tmp_path: Path) -> None:
        call = '(lambda kind: kind("conv2d", idea="", plan=lambda s: []))(Variant)'
        source = self.write(tmp_path / "one", call)
        with pytest.raises(VariantError, match=r"has no Variant\(\.\.\.\) in it"):
            create(str(tmp_path / "two"), source)
        assert not (tmp_path / "two").exists()

    def test_headers_stay_in_reach(self, tmp_path: Path, quick_emulator: Device) -> None:
        (tmp_path / "common.h").write_text("#define ONE 1.0f\n")
        kernel = '#include "../common.h"\n#include "own.h"\n#include <cuda_fp16.h>\nfloat two = ONE + OWN;\n'
        source = self.write(tmp_path / "one", 'Variant("conv2d", plan=lambda s: [], idea="")', kernel)
        (tmp_path / "one/own.h").write_text('#include "../own.h"\n')
        (tmp_path / "own.h").write_text("#define OWN 1.0f\n")
        folder = create(str(tmp_path / "deep/down/two"), source)
        assert (
            (folder / "kernel.cu").read_text().startswith('#include "../../../common.h"\n#include "own.h"\n')
        )
        quick_emulator.compile(folder / "kernel.cu", {})

    def test_headers_of_an_included_kernel_stay_in_reach(
        self, tmp_path: Path, quick_emulator: Device
    ) -> None:
        call = 'Variant("conv2d", plan=lambda s: [], idea="")'
        self.write(
            tmp_path / "base", call, '#include "one.h"\n#include "../child/own.h"\nfloat x = ONE + OWN;\n'
        )
        (tmp_path / "base/one.h").write_text("#define ONE 1.0f\n")
        child = self.write(tmp_path / "child", call, '\n#include "../base/kernel.cu"\nfloat z = x;\n')
        (tmp_path / "child/own.h").write_text("#define OWN 1.0f\n")
        folder = create(str(tmp_path / "deep/two"), child)
        text = (folder / "kernel.cu").read_text()
        assert text == '\n#include "one.h"\n#include "own.h"\nfloat x = ONE + OWN;\nfloat z = x;\n'
        assert (folder / "one.h").read_text() == "#define ONE 1.0f\n"
        quick_emulator.compile(folder / "kernel.cu", {})

    def test_headers_of_one_name(self, tmp_path: Path) -> None:
        call = 'Variant("conv2d", plan=lambda s: [], idea="")'
        self.write(tmp_path / "base", call, '#include "one.h"\n')
        child = self.write(tmp_path / "child", call, '#include "one.h"\n#include "../base/kernel.cu"\n')
        for folder in ("base", "child"):
            (tmp_path / folder / "one.h").write_text(f"// of {folder}\n")
        with pytest.raises(VariantError, match=r"child/one\.h and .*base/one\.h, .* have the same name"):
            create(str(tmp_path / "two"), child)
        assert not (tmp_path / "two").exists()
