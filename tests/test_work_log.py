"""The work log: entries of the verbs, damaged files, and the page."""

import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from work_log_entries import entry
from work_log_entries import log as log

from mini_dnn.cli import main
from mini_dnn.cli.log import VARIABLE
from mini_dnn.device.code_hash import code_hash
from mini_dnn.errors import DataError, MiniDnnError, UsageError
from mini_dnn.measuring.work_log import Tried, append, check_log, read
from mini_dnn.report.work_log_page import TITLE, write_work_log
from mini_dnn.variant import exercise, find
from mini_dnn.variant.scaffold import create

SIZES = "1,1,6,5,2,3,2"


def test_verbs_append_what_was_tried(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--shapes", SIZES, "--log", str(log)]
    assert main(["run", "m1", *words, "--device", "emulator", "--check", "--expect", "it is right"]) == 0
    assert main(["check", "m1", *words]) == 0
    assert f"logged in {log}" in capsys.readouterr().out
    assert main(["profile", "m1", "--tool", "emulator", *words]) == 0
    ran, checked, profiled = read(log).entries
    assert (ran.verb, ran.variant, ran.expected, ran.ok) == ("run", "m1/direct", "it is right", True)
    assert ran.verdict == "agrees with float64"
    assert ran.code_hash == code_hash(find("m1").source)
    assert ran.results[0].op_ms is None, "an emulator gives no op time"
    assert ran.results[0].max_error is not None
    assert ran.results[0].shape == {"N": 1, "C": 1, "H": 6, "W": 5, "M": 2, "R": 3, "S": 2}
    assert (checked.verb, checked.verdict) == ("check", "clean")
    assert checked.expected.startswith("over m1/cpu"), "what the kernel's header expects"
    assert profiled.results[0].counters["conv_direct: l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == 2
    assert any("sectors" in note for note in profiled.notes)


def test_what_an_exercise_asks_is_no_answer(log: Path, tmp_path: Path) -> None:
    """The exercise's question about the gain, and the placeholder for the idea, do not count."""
    folder = create(str(tmp_path / "mine"), find("m1"), exercise.make)
    code = 'extern "C"'
    asked = (folder / "kernel.cu").read_text().partition(code)[0]
    solved = code + find("m1").source.read_text().partition(code)[2]
    for gain in (r"\g<0>", "// Gain      twice\n"):
        header = re.sub(r"// Gain .*?\n(?=// \S)", gain, asked, flags=re.DOTALL)
        (folder / "kernel.cu").write_text(header + solved)
        assert main(["check", str(folder), "--shapes", "1,1,1,1,1,1,1", "--log", str(log)]) == 0
    before, after = read(log).entries
    assert (before.idea, before.expected, after.expected) == ("", "", "twice")
    page = write_work_log(read(log), log.parent / "page")[1].read_text()
    assert "there is no idea; say in `idea` of its `variant.py`" in page


def test_findings_and_errors_are_logged_and_wrong_use_is_not(log: Path, tmp_path: Path) -> None:
    main(["new", str(tmp_path / "mine"), "--from", "m1"])
    kernel = tmp_path / "mine" / "kernel.cu"
    kernel.write_text(kernel.read_text() + "\nnonsense;\n")
    words = [str(tmp_path / "mine"), "--shapes", SIZES, "--log", str(log)]
    assert main(["run", *words, "--device", "emulator"]) == 2
    assert main(["run", *words, "--at", "conv1"]) == 2
    assert main(["run", *words, "--repeat", "0"]) == 2
    (failed,) = read(log).entries
    assert not failed.ok
    assert "nonsense" in failed.verdict
    assert failed.expected == "", "the copied header is about the parent"


def test_the_environment_names_a_log(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["run", "cpu", "--shapes", SIZES]
    log = log.parent / "mine" / log.name
    monkeypatch.setattr("mini_dnn.measuring.work_log.ROOT", log.parents[1])  # without mine/, like a new clone
    monkeypatch.setenv(VARIABLE, str(log))
    assert main(words) == 0
    assert [one.variant for one in read(log).entries] == ["m1/cpu"]
    monkeypatch.delenv(VARIABLE)
    assert main([*words, "--expect", "nothing"]) == 2
    assert len(read(log).entries) == 1


def test_what_is_no_log_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "report.md"
    other.write_text("my report\n")
    assert main(["run", "cpu", "--shapes", SIZES, "--log", str(other)]) == 2
    assert "is not a work log" in capsys.readouterr().err
    assert other.read_text() == "my report\n"
    with pytest.raises(UsageError, match="no folder"):
        check_log(tmp_path / "none" / "log.jsonl")
    with pytest.raises(UsageError, match=r"(?i)directory"):
        check_log(tmp_path)
    with pytest.raises(DataError, match=r"no entry of a work log; name a file that .* --log FILE'$"):
        read(other)
    with pytest.raises(MiniDnnError, match="cannot be written"):
        append(tmp_path / "none" / "log.jsonl", entry())


def test_no_other_verb_takes_a_log_for_its_own_output(log: Path) -> None:
    append(log, entry())
    before = log.read_bytes()
    assert main(["run", "cpu", "--shapes", SIZES, "--json", str(log)]) == 2
    assert main(["run", "cpu", "--shapes", SIZES, "--json", str(log), "--log", str(log), "--force"]) == 2
    assert log.read_bytes() == before


def test_a_damaged_line_costs_that_line_alone(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(log, entry())
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:50])  # as after a crash of the machine
    append(log, entry("m1/tiled_direct"))
    with log.open("a") as file:
        file.write(json.dumps({"work_log": 1, "entry": {"verb": "run"}}) + "\nnot JSON\n")
    before = log.read_bytes()
    found = read(log)
    assert [one.variant for one in found.entries] == ["m1/direct", "m1/tiled_direct"]
    assert [damaged.line for damaged in found.damaged] == [2, 4, 5]
    out = log.parent / "page"
    assert main(["report", "--log", str(log), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"line 2 of {log} is damaged" in told
    assert f"2 entries of {log}; open " in told
    assert f"line 5 of <code>{log.name}</code> is damaged" in (out / "index.html").read_text()
    assert log.read_bytes() == before


def test_lines_that_are_appended_at_once_stay_whole(log: Path) -> None:
    def work() -> None:
        for _ in range(20):
            append(log, entry(idea="x" * 9_000))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read(log)
    assert (len(found.entries), found.damaged) == (80, [])


def test_texts_that_no_reader_takes_are_made_readable(log: Path) -> None:
    append(log, entry(verdict="\x1b[31mred\x07", notes=["long " * 10_000]))
    (found,) = read(log).entries
    assert found.verdict == " [31mred "
    assert len(found.notes[0]) == 10_000


def test_an_entry_that_no_reader_takes_is_an_error_in_words(log: Path) -> None:
    with pytest.raises(MiniDnnError, match=r"--log .*log\.jsonl cannot hold this result: .*length <= 300"):
        append(log, replace(entry(), variant="x" * 301))
    assert not log.exists()


def test_the_page_compares_with_the_earlier_code_and_the_parent(log: Path) -> None:
    append(log, entry("m1/direct", 8.0))
    append(log, entry("m1/tiled_direct", 10.0, ok=False, verdict="slow"))
    append(log, entry("m1/tiled_direct", 4.0, code_hash="b" * 64, notes=["3 sectors <b>"]))
    append(log, entry("m1/tiled_direct", 5.0, code_hash="b" * 64, device="another GPU"))
    written = write_work_log(read(log), log.parent / "page")
    assert [path.name for path in written] == ["index.html", "report.md"]
    lines = written[1].read_text().splitlines()
    rows = [line.split(" | ")[2:] for line in lines if "| conv1, batch 1 |" in line]
    assert [row[1:5] for row in rows] == [
        ["–", "–", "8.00", "–"],
        ["`m1/direct` `aaaaaaa`", "8.00", "10.0", "0.800×"],
        ["`m1/tiled_direct` `aaaaaaa`", "10.0", "4.00", "2.50×"],
        ["–", "–", "5.00", "–"],
    ]
    assert any("**slow**" in line for line in lines)
    assert "Expected: twice as fast" in lines
    assert "- `m1/direct`: no clean `check` of its last code: `run.py check --impl m1/direct`" in lines
    page = written[0].read_text()
    assert f"<title>{TITLE}</title>" in page
    assert "3 sectors &lt;b&gt;" in page
    assert main(["report", "--log", str(log), "--out", str(log.parent / "page")]) == 0


def test_counters_stand_beside_the_earlier_ones(log: Path) -> None:
    for value, code in ((64.0, "a"), (16.0, "b")):
        tried = Tried(problem="conv1", shape={"N": 1}, counters={"conv: sectors": value})
        append(log, entry(verb="profile", code_hash=code * 64, results=[tried]))
    text = write_work_log(read(log), log.parent / "page")[1].read_text()
    assert "| `conv: sectors` | 64 | 16 | 0.250× |" in text


def test_counters_are_those_of_all_launches_of_a_kernel(log: Path, tmp_path: Path) -> None:
    """Whatever their grids are."""
    (tmp_path / "variant.py").write_text(
        "from mini_dnn.variant import Launch, Variant\n"
        "VARIANT = Variant(op='conv2d', idea='a copy', plan=lambda s: [\n"
        "    Launch('copy', (blocks,), (64,), ('x', 'y', s.N * s.H * s.W)) for blocks in (1, 2)])\n"
    )
    (tmp_path / "kernel.cu").write_text(
        'extern "C" __global__ void copy(const float* x, float* y, int n) {\n'
        "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) y[i] = x[i];\n}\n"
    )
    words = ["profile", str(tmp_path), "--tool", "emulator", "--shapes", "2,1,8,8,1,1,1"]
    assert main([*words, "--log", str(log)]) == 0
    (tried,) = read(log).entries[-1].results
    assert tried.counters["copy: l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 2 + 4


def test_a_page_replaces_only_its_own_kind(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(log, entry())
    (log.parent / "index.html").write_text("<title>my site</title>")
    assert main(["report", "--log", str(log), "--out", str(log.parent)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["report", "results.json", "--log", str(log)]) == 2
    assert {path.name for path in log.parent.iterdir()} == {"log.jsonl", "index.html"}
    capsys.readouterr()
    assert main(["report", "--log", str(log), "--out", str(log.parent / "page")]) == 0
    assert f"1 entry of {log}; open " in capsys.readouterr().out
    page = log.parent / "page"
    for name in ("old.png", "own.png"):
        (page / name).write_bytes(b"a picture")
    (page / "report.md").write_text("# a page\n\n![a picture of an earlier page](old.png)\n\ntext\n")
    assert main(["report", "--log", str(log), "--out", str(page)]) == 0
    assert {path.name for path in page.iterdir()} == {"index.html", "report.md", "own.png"}
