"""Small C++ programs, by the compiler alone: a lab needs no build tools."""

import shutil
import subprocess
from pathlib import Path


def build(source: str, target: Path, *options: str) -> str | None:
    """Compile to a file. Says why it could not be done; None if it was."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        return "it takes a C++ compiler"
    command = [compiler, "-std=c++17", "-x", "c++", "-", "-o", str(target), *options]
    done = subprocess.run(command, input=source, text=True, capture_output=True, check=False)
    return None if done.returncode == 0 else "the C++ compiler does not get through it"
