"""`python -m stridewise` is the command line."""

from stridewise.cli import main

if __name__ == "__main__":
    main()
