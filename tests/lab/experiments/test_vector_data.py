import shutil
import subprocess
import sys

import pytest

from stridewise.lab.experiments import vector_data


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler")
def test_a_vector_that_grew_by_itself_is_contiguous() -> None:
    assert vector_data.elements_beside() == 999


def test_without_a_compiler_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert vector_data.elements_beside() == "it takes a C++ compiler"


def test_a_compiler_that_fails_says_nothing_of_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run
    monkeypatch.setattr(shutil, "which", lambda _: sys.executable)  # which can't read C++
    tried = []

    def watched(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        done: subprocess.CompletedProcess[bytes] = run(command, **options)  # type: ignore[call-overload]
        tried.append(done.returncode)
        return done

    monkeypatch.setattr(subprocess, "run", watched)

    assert vector_data.elements_beside() == "the C++ compiler does not get through it"
    assert [bool(code) for code in tried] == [True]
