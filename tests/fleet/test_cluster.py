"""Many files on Dask: processes of this machine, somebody's cluster, and what can happen to both. On loopback only."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import msgspec
import psutil
import pytest
from distributed import LocalCluster

from stridewise import api
from stridewise.errors import InputError, UsageError
from stridewise.fleet import cluster as fleet_cluster

from . import traces

pytestmark = [
    # Dask closes some sockets and loops only when they are collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(180),
]

KILLER = """
import os, signal

from fsspec.implementations.memory import MemoryFileSystem

class Killer(MemoryFileSystem):
    protocol = "killer"

    def _open(self, path, **options):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def started(workers: int = 2) -> Any:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    )


@pytest.fixture(scope="module")
def dask_cluster() -> Iterator[Any]:
    with started() as cluster:
        yield cluster


@pytest.fixture
def killer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL whose store kills the process that opens it, in every process that starts from now on."""
    packages = tmp_path / "packages"
    (packages / "killer-1.0.dist-info").mkdir(parents=True)
    (packages / "killer.py").write_text(KILLER)
    (packages / "killer-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: killer\nVersion: 1.0\n")
    (packages / "killer-1.0.dist-info" / "entry_points.txt").write_text("[fsspec.specs]\nkiller = killer:Killer\n")
    monkeypatch.syspath_prepend(str(packages))
    return "killer://rank9.json"


def same(one: api.Fleet, other: api.Fleet) -> bool:
    return msgspec.json.encode(one) == msgspec.json.encode(other)


def test_processes_and_a_cluster_say_the_same_as_this_process(tmp_path: Path, dask_cluster: Any) -> None:
    files = [*traces.fleet(tmp_path, 10, odd=4), str(tmp_path / "rank10.json")]
    here = api.analyze_fleet(files, workers=1)
    assert len(here.rows) == 10
    assert len(here.failures) == 1
    assert same(api.analyze_fleet(files, workers=2), here)
    assert same(api.analyze_fleet(files, cluster=dask_cluster.scheduler_address), here)
    with distributed.Client(dask_cluster, set_as_default=False) as client:
        assert same(api.analyze_fleet(files, cluster=client), here)
        loaded = client.run(eval, "{'torch', 'stridewise.analysis'} & set(__import__('sys').modules)")
        assert list(loaded.values()) == [{"stridewise.analysis"}] * 2
        assert client.status == "running"


def test_more_files_than_are_sent_at_once(tmp_path: Path, dask_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_cluster, "_AHEAD", 3)
    monkeypatch.setattr("stridewise.fleet.read._AT_ONCE", 2)
    files = traces.fleet(tmp_path, 11)
    assert same(api.analyze_fleet(files, cluster=dask_cluster.scheduler_address), api.analyze_fleet(files, workers=1))


def test_a_relative_path_is_read_whatever_folder_a_worker_is_in(
    tmp_path: Path, dask_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces.fleet(tmp_path, 2)
    monkeypatch.chdir(tmp_path)
    fleet = api.analyze_fleet(["rank*.json"], cluster=dask_cluster.scheduler_address)
    assert [row.at.file for row in fleet.rows] == ["rank0.json", "rank1.json"]


def test_processes_are_gone_afterwards_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    api.analyze_fleet(traces.fleet(tmp_path / "runs", 4), workers=2)
    after = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert [child for child in after if "resource_tracker" not in " ".join(child.cmdline())] == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_cluster_on_this_machine_listens_on_loopback_and_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}
    run = fleet_cluster._answers

    def answers(client: Any, *arguments: Any) -> Any:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        ports = [
            socket_ for process in processes for socket_ in process.net_connections() if socket_.status == "LISTEN"
        ]
        seen["addresses"] = {socket_.laddr.ip for socket_ in ports}
        seen["scheduler"] = client.scheduler.address
        with pytest.raises(UsageError, match="can't be reached"):
            fleet_cluster._require_scheduler(client.scheduler.address.replace("tls", "tcp"), "it")
        return run(client, *arguments)

    monkeypatch.setattr(fleet_cluster, "_answers", answers)
    api.analyze_fleet(traces.fleet(tmp_path, 2), workers=2)
    assert seen["addresses"] == {"127.0.0.1"}
    assert seen["scheduler"].startswith("tls://127.0.0.1:")


def test_a_file_that_kills_its_worker_is_named_and_the_others_go_on(tmp_path: Path, killer: str) -> None:
    files = traces.fleet(tmp_path / "runs", 6)
    fleet = api.analyze_fleet([*files[:3], killer, *files[3:]], workers=2)
    assert [row.at.rank for row in fleet.rows] == [0, 1, 2, 3, 4, 5]
    (failed,) = fleet.failures
    assert failed.at.file == killer
    assert failed.message == "each worker that read it died; perhaps it takes more memory than they have"


def test_a_worker_that_is_lost_is_no_fault_of_a_file(tmp_path: Path) -> None:
    files = traces.fleet(tmp_path, 12)
    with started(1) as cluster:

        def kill(read: int, _: int) -> None:
            if read == 4:
                for nanny in cluster.workers.values():
                    os.kill(nanny.process.pid, signal.SIGKILL)

        fleet = api.analyze_fleet(files, cluster=cluster.scheduler_address, progress=kill)
    assert len(fleet.rows) == 12
    assert fleet.failures == ()


# ------------------------------------------------------------------------------------------------ clusters that are not


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of something that listens and is no scheduler."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(5)
    kept = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            kept.append(connection)
            if request.param == "http":
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 20)
            if request.param != "silent":
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)
    for connection in kept:
        connection.close()


@pytest.mark.parametrize("peer", ["silent", "http", "close"], indirect=True)
def test_what_answers_is_no_scheduler(peer: str, tmp_path: Path) -> None:
    before = time.monotonic()
    with pytest.raises(UsageError) as caught:
        api.analyze_fleet(traces.fleet(tmp_path, 2), cluster=peer)
    assert str(caught.value).startswith(f"the cluster at {peer} can't be reached: ")
    assert len(str(caught.value).splitlines()) == 1
    assert time.monotonic() - before < 30  # and not for ever


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_cluster, "_CONNECT_S", 1)
    with pytest.raises(UsageError, match=r"the cluster at 127\.0\.0\.1:1 can't be reached"):
        api.analyze_fleet(traces.fleet(tmp_path, 2), cluster="127.0.0.1:1")


def test_the_address_of_a_worker(tmp_path: Path, dask_cluster: Any) -> None:
    address = dask_cluster.workers[0].worker_address
    with pytest.raises(UsageError, match="is no scheduler, but a worker"):
        api.analyze_fleet(traces.fleet(tmp_path, 2), cluster=address)


def test_a_cluster_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_cluster, "_LOOK_S", 0.1)
    monkeypatch.setattr(fleet_cluster, "_PATIENCE_S", 1)
    with started(0) as cluster, pytest.raises(UsageError, match="has had no worker for 1 s"):
        api.analyze_fleet(traces.fleet(tmp_path, 2), cluster=cluster.scheduler_address)


def test_a_scheduler_that_goes_away(tmp_path: Path) -> None:
    cluster = started(1)
    try:
        with pytest.raises(UsageError, match=r"connection to the cluster at .* was lost"):
            api.analyze_fleet(
                traces.fleet(tmp_path, 40),
                cluster=cluster.scheduler_address,
                progress=lambda read, _: cluster.close() if read == 2 else None,
            )
    finally:
        cluster.close()


def test_nothing_can_be_read_on_a_cluster(tmp_path: Path, dask_cluster: Any) -> None:
    files = [str(tmp_path / f"rank{rank}.json") for rank in range(3)]
    with pytest.raises(InputError, match="None of 3 files could be read"):
        api.analyze_fleet(files, cluster=dask_cluster.scheduler_address)


# ---------------------------------------------------------------------------------------------- a program of its own


def program(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("when", ["starting", "reading"])
def test_control_c_ends_every_process_without_a_word(when: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank99.json")  # whoever reads it waits
    traces.fleet(tmp_path, 4)
    running = program("-m", "stridewise", "trace", str(tmp_path), "--workers", "2")
    process = psutil.Process(running.pid)
    # One tracker of resources and two workers; each worker has a second thread or more when it is up.
    while len(process.children(recursive=True)) < (1 if when == "starting" else 3) and running.poll() is None:
        time.sleep(0.01)
    children = process.children(recursive=True)
    while when == "reading" and min(child.num_threads() for child in children if is_worker(child)) < 4:
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, "", "")
    assert psutil.wait_procs(children, timeout=20)[1] == []


def is_worker(process: psutil.Process) -> bool:
    return "spawn_main" in " ".join(process.cmdline())


def test_a_script_is_run_once_and_needs_no_guard(tmp_path: Path) -> None:
    traces.fleet(tmp_path / "runs", 4)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from stridewise import api\n"
        "print('once', flush=True)\n"
        "def f(): pass\n"
        "print(len(api.analyze_fleet([sys.argv[1]], workers=2).rows), sys.modules['__main__'].f is f)\n"
    )
    running = program(str(script), str(tmp_path / "runs"))
    try:
        out, err = running.communicate(timeout=60)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
    assert (running.returncode, out, err) == (0, "once\n4 True\n", "")
