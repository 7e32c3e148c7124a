"""The README's commands and Gradescope's set-up on a bare Debian: ``pytest -m bare``. This takes minutes."""

import subprocess

import pytest

from mini_dnn.paths import ROOT

NOT_HERE = 77  # exit status of the script if there is no root or no debootstrap
MARK = "bare"


@pytest.mark.bare
@pytest.mark.whole
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("what", ["readme", "gradescope"])
def test_a_bare_debian(what: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("markexpr") != MARK:
        pytest.skip(f"it takes minutes; `pytest -m {MARK}` runs it, and so does `sudo course/bare.sh {what}`")
    script = [ROOT / "course/bare.sh", what]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    if done.returncode == NOT_HERE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
