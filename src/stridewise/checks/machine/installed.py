"""Which versions are installed, told from files alone: nothing is imported."""

import importlib.util
import re
from collections import defaultdict
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from stridewise.results.doctor import Extra

_VERSION = re.compile(r"^__version__\s*(?::[^=]*)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*([^;\[]*)(?:;(.*))?", re.DOTALL)
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_LEAST = re.compile(r">=\s*([\d.]+)")
_OF_DEVELOPERS = ("bench", "dev")
"""What those take who work on stridewise itself."""


def torch_version() -> str | None:
    """The version of torch that would be imported; None without one."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    # torch/version.py tells the build too, as in 2.13.0+cpu; some packagers leave it out of the metadata.
    for folder in found.submodule_search_locations or ():
        try:
            text = (Path(folder) / "version.py").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if match := _VERSION.search(text):
            return match[1]
    return _version("torch") if found.origin else None


def extras() -> tuple[Extra, ...]:
    """The optional parts, with the versions of their packages; none where stridewise is not installed as a package."""
    try:
        required = metadata.requires("stridewise") or []
    except metadata.PackageNotFoundError:
        return ()
    packages: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for line in required:
        match = _REQUIREMENT.fullmatch(line)
        extra = _EXTRA.search(match[3] or "") if match else None
        if match and extra and extra[1] not in _OF_DEVELOPERS:
            packages[extra[1]][match[1]] = match[2]
    return tuple(_extra(name, packages[name]) for name in sorted(packages))


def _extra(name: str, packages: Mapping[str, str]) -> Extra:
    versions = {package: _version(package) for package in sorted(packages)}
    installed = all(_is_enough(version, packages[package]) for package, version in versions.items())
    return Extra(name, installed, versions, f'pip install "stridewise[{name}]"')


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _is_enough(version: str | None, wanted: str) -> bool:
    """Whether a version is not below the least one. Other limits are pip's to judge."""
    least = _LEAST.search(wanted)
    return version is not None and (least is None or _release(version) >= _release(least[1]))


def _release(version: str) -> tuple[int, ...]:
    numbers = tuple(map(int, re.findall(r"\d+", re.split(r"[^\d.]", version, maxsplit=1)[0])))
    while numbers[-1:] == (0,):
        numbers = numbers[:-1]
    return numbers
