"""Downloads from servers on the loopback interface: mirrors, MD5 sums, silence, bad folders."""

import errno
import functools
import hashlib
import http.server
import os
import socket
import threading

import pytest
import requests

from mini_dnn.datasets import download as module
from mini_dnn.datasets.download import download
from mini_dnn.errors import DataError

CONTENTS = {"images.gz": bytes(range(256)) * 400, "labels.gz": b"labels"}
WANTED = {name: hashlib.md5(content).hexdigest() for name, content in CONTENTS.items()}


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.gets.append(self.path)
        super().do_GET()


@pytest.fixture(autouse=True)
def no_proxy_and_patience(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("PROBE_S", "STALL_S"):
        monkeypatch.setattr(module, name, 300)


@pytest.fixture
def serve(tmp_path):
    """A function that serves files on a new port. The server records its GET requests."""
    servers = []

    def start(contents):
        folder = tmp_path / f"server{len(servers)}"
        folder.mkdir()
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        handler = functools.partial(Handler, directory=folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.gets, server.url = [], f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data" / "set"


def listed(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_downloads_and_keeps(serve, folder):
    server = serve(CONTENTS)
    with download(WANTED, [server.url], folder) as (place, mirror):
        assert (place, mirror) == (folder, server.url)
    assert listed(folder) == CONTENTS


def test_other_sums_are_named(serve, folder):
    server = serve(CONTENTS)
    sum_ = hashlib.sha256(CONTENTS["images.gz"]).hexdigest()
    with download({"images.gz": f"sha256:{sum_}"}, [server.url], folder):
        assert listed(folder) == {"images.gz": CONTENTS["images.gz"]}
    wrong = {"labels.gz": f"sha256:{sum_}"}
    with pytest.raises(DataError, match=sum_), download(wrong, [server.url], folder):
        pass
    assert list(listed(folder)) == ["images.gz"]


def test_right_files_are_not_fetched_again(serve, folder):
    server = serve(CONTENTS)
    folder.mkdir(parents=True)
    (folder / "images.gz").write_bytes(CONTENTS["images.gz"])
    (folder / "labels.gz").write_bytes(b"damaged")
    with download(WANTED, [server.url], folder):
        assert server.gets == ["/labels.gz"]
    assert listed(folder) == CONTENTS


def test_next_mirror_after_a_wrong_file(serve, folder):
    wrong = serve({**CONTENTS, "labels.gz": b"<html>blocked</html>"})
    right = serve(CONTENTS)
    with download(WANTED, [wrong.url, right.url], folder) as (_, mirror):
        assert mirror == right.url
    assert listed(folder) == CONTENTS
    assert right.gets == ["/labels.gz"]  # the images from the first mirror were right


def test_all_mirrors_fail(serve, folder):
    wrong, empty = serve({**CONTENTS, "images.gz": CONTENTS["images.gz"][:-1]}), serve({})
    with (
        pytest.raises(DataError) as caught,
        download(WANTED, [wrong.url, empty.url, "http://127.0.0.1:9/"], folder),
    ):
        pass
    for part in (wrong.url, WANTED["images.gz"], empty.url, "404", "127.0.0.1:9/ cannot be reached"):
        assert part in str(caught.value)
    assert listed(folder) == {}


def test_a_silent_server_costs_no_more_than_the_probe(folder, monkeypatch):
    monkeypatch.setattr(module, "PROBE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mirror = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with (
            pytest.raises(DataError, match=r"did not answer within 0\.3 s"),
            download(WANTED, [mirror], folder),
        ):
            pass


def test_a_time_out_of_the_probe_says_how_long_it_was(folder, monkeypatch):
    def head(*_, **__):
        raise requests.ReadTimeout

    monkeypatch.setattr(module, "PROBE_S", 4.0)
    monkeypatch.setattr(requests, "head", head)
    with (
        pytest.raises(DataError, match=r"did not answer within 4 s"),
        download(WANTED, ["http://a/"], folder),
    ):
        pass


def test_a_look_up_that_hangs_costs_no_more_than_the_probe(folder, monkeypatch):
    """If name servers drop packets, `requests` waits far longer than its own time-out."""
    over = threading.Event()
    monkeypatch.setattr(module, "PROBE_S", 0.1)
    monkeypatch.setattr(requests, "head", lambda *_, **__: over.wait())
    with (
        pytest.raises(DataError, match=r"did not answer within 0\.1 s"),
        download(WANTED, ["http://127.0.0.1:9/"], folder),
    ):
        pass
    over.set()


def test_folder_that_cannot_be_written(serve, folder, caplog):
    server = serve(CONTENTS)
    folder.parent.write_text("a file where the folder should be")
    with download(WANTED, [server.url], folder) as (place, _):
        assert listed(place) == CONTENTS
    assert not place.exists()
    assert "will not be kept" in caplog.text


def test_what_a_killed_download_left_is_removed(serve, folder):
    server = serve(CONTENTS)
    folder.mkdir(parents=True)
    left = folder / f"images.gz.{0x123:032x}.tmp"
    left.write_bytes(b"the first half")
    os.utime(left, (0, 0))
    with download(WANTED, [server.url], folder):
        pass
    assert listed(folder) == CONTENTS


def test_other_users_may_read_the_files(serve, folder):
    server = serve(CONTENTS)
    before = os.umask(0o022)
    try:
        with download(WANTED, [server.url], folder):
            pass
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_a_full_disk_is_not_the_mirrors_fault(serve, folder, monkeypatch):
    server = serve(CONTENTS)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "replacing", full)
    with (
        pytest.raises(DataError, match=r"images\.gz cannot be written: No space left on device$"),
        download(WANTED, [server.url], folder),
    ):
        pass


@pytest.mark.parametrize("silent", [False, True], ids=["ended", "silent"])
def test_a_download_that_breaks_off(folder, monkeypatch, silent):
    class Half(Handler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(bytes(500))
            self.wfile.flush()
            over.wait(30 if silent else 0)

    over = threading.Event()
    if silent:
        monkeypatch.setattr(module, "STALL_S", 0.1)
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Half, directory=folder)
    ) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        message = "sent nothing for 0.1 s" if silent else "ended the connection before the file was complete"
        with (
            pytest.raises(DataError, match=message),
            download(WANTED, [f"http://127.0.0.1:{server.server_port}/"], folder),
        ):
            pass
        over.set()
        server.shutdown()
    assert listed(folder) == {}
