"""`python -m stridewise` is the command line."""

import os
import sys

if __name__ == "__main__":
    # `-m` puts the current folder first on the path. Where nothing of the project is to run, nothing of it is imported
    # either: a `queue.py` there would be, in the place of Python's own.
    if sys.argv[1:2] in (["lint"], ["lsp"]) and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]

    from stridewise.cli import main

    main()
