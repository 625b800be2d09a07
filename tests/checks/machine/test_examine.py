"""Each thing is tried in a process of its own: whatever happens there is a line of the report."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import stridewise
from stridewise.checks.machine import examine
from stridewise.checks.machine.examine import _tried
from stridewise.checks.machine.probes import PROBES, Probe, Saw

PROGRAM = """
import os, sys, time
sys.path.append({root!r})
from stridewise.checks.machine.probes import PROBES, Probe, Saw, main

def good():
    print("what a probe prints is not an answer")
    return [Saw("one", "works", "seen")]

def fails():
    raise RuntimeError("no such device\\nat all")

def crashes():
    os.abort()

def leaves():
    print("it had enough", file=sys.stderr)
    os._exit(3)

def hangs():
    os.system("sleep 60 & wait")

def half():
    return [Saw("one", "works", "seen"), Saw("two", "absent", "not here")]

for function in (good, fails, crashes, leaves, hangs, half):
    PROBES[function.__name__] = Probe(function, {{"one": "this", "two": "that"}})
main(sys.argv[1:])
"""


@pytest.fixture
def tried(monkeypatch):
    """Tries probes that do all that can go wrong."""
    monkeypatch.setattr(examine, "_CHILD", PROGRAM)
    for name in ("good", "fails", "crashes", "leaves", "half"):
        monkeypatch.setitem(PROBES, name, Probe(list, {"one": "this", "two": "that"}))
    monkeypatch.setitem(PROBES, "hangs", Probe(list, {"one": "this"}, seconds=0.2))
    monkeypatch.setattr(examine, "_START_S", 20.0)
    return lambda *names: [(row.name, row.health, row.what) for row in _tried(names, lambda _: None)]


def test_what_it_saw(tried):
    assert tried("good", "half") == [
        ("one", "works", "seen"),
        ("one", "works", "seen"),
        ("two", "absent", "not here"),
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fails", "RuntimeError: no such device at all"),
        ("crashes", "it crashed (SIGABRT)"),
        ("leaves", "its process ended with code 3: it had enough"),
    ],
)
def test_one_that_fails_is_a_line_and_the_next_goes_on(tried, name, why):
    *rows, last = tried(name, "good")
    assert [(row[0], row[1]) for row in rows] == [("one", "fails"), ("two", "fails")]
    assert all(row[2].startswith(why) for row in rows)
    assert last == ("one", "works", "seen")


def test_one_that_hangs_is_ended(tried, monkeypatch):
    monkeypatch.setattr(examine, "_START_S", 0.0)
    monkeypatch.setitem(PROBES, "hangs", Probe(list, {"one": "this"}, seconds=3.0))
    (row,) = tried("hangs")
    assert row == ("one", "fails", "it did not end in time")


def test_a_torch_that_cannot_be_imported_is_all_there_is_to_say(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (row,) = examine.examine(quick=True)
    assert (row.name, row.health, row.core) == ("torch", "fails", True)
    assert row.what == "OSError: libcudart.so.12: cannot open shared object file"


def test_without_columns_there_are_no_expressions(monkeypatch):
    monkeypatch.setenv("PYTHONNODEBUGRANGES", "1")
    rows = {row.name: row for row in _tried(["recording"], lambda _: None)}
    assert rows["recording"].health == "works"
    assert rows["expressions"].health == "fails"
    assert "PYTHONNODEBUGRANGES" in rows["expressions"].advice


def test_what_lies_in_the_folder_is_not_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue.py").write_text("raise SystemExit('not this one')")
    (row,) = _tried(["torch"], lambda _: None)
    assert row.health == "works"


def test_each_probe_says_what_it_is_needed_for():
    names = [name for probe in PROBES.values() for name in probe.abilities]
    assert len(names) == len(set(names))
    assert [name for name, probe in PROBES.items() if probe.core] == ["torch", "recording"]
    assert Probe(list, {"a": "x", "b": "y"}, core=True).ability(Saw("b", "works", "")).core is False


LISTENS = """
import psutil, sys
sys.path.append({root!r})
import torch.distributed as dist
from stridewise.checks.machine.probes import PROBES

def shown(*_):
    print(*(each.laddr.ip for each in psutil.Process().net_connections() if each.status == psutil.CONN_LISTEN))

dist.all_reduce = shown
PROBES["gloo"].run()
"""


def test_a_process_group_listens_on_loopback_alone():
    """Whatever interface gloo would take."""
    loopback = {"lo", "lo0"}
    other = next((name for _, name in socket.if_nameindex() if name not in loopback), None)
    if other is None or not loopback & {name for _, name in socket.if_nameindex()}:
        pytest.skip("there is one interface alone")
    root = str(Path(stridewise.__file__).parents[1])
    environ = {**os.environ, "GLOO_SOCKET_IFNAME": other}
    command = [sys.executable, "-c", LISTENS.format(root=root)]
    out = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120, check=True).stdout
    assert set(out.split()) <= {"127.0.0.1", "::1"}
    assert out.split()
