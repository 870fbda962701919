"""`python -m kvv` is the command line."""

from kvv.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
