"""Many files at once: which they are, and reading them here, in processes of this machine, or on a Dask cluster."""

from stridewise.fleet.files import expand
from stridewise.fleet.read import read_fleet
from stridewise.fleet.work import Options

__all__ = ["Options", "expand", "read_fleet"]
