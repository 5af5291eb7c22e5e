"""The command `tutti`, and `python -m tutti`: the program that the package carries takes this process's place."""
import os
import pathlib
import sys
from typing import NoReturn

from . import _core


def main() -> NoReturn:
    program = pathlib.Path(_core.__file__ or "").parent / "bin" / "tutti"
    os.environ.setdefault("PYTHON_EXEC", sys.executable)  # a script that it starts gets this interpreter
    try:
        os.execv(program, ["tutti", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tutti: {program} cannot be started: {error.strerror}; "
                 "install the package anew: pip install --force-reinstall libtutti")


if __name__ == "__main__":
    main()
