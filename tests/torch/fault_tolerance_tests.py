#!/usr/bin/env python3
"""PyTorch's own tests of groups that are made anew with other ranks (since 2.14; they are in no package of PyTorch), on tutti by
name, and on gloo, in whose place TUTTI_REPLACE_GLOO=1 puts tutti.

Usage: PYTORCH_SOURCES=FOLDER fault_tolerance_tests.py [-v] [TuttiFaultToleranceTest]    with PyTorch's sources in FOLDER
"""
import os
import pathlib

import tutti.torch  # noqa: F401, the backend

path = pathlib.Path(os.environ["PYTORCH_SOURCES"]) / "test/distributed/test_c10d_fault_tolerance.py"
backends = '    ("gloo", "cpu"),\n'
source = path.read_text()
assert backends in source, f"{path} names its backends in another way"
# Here, because each rank is a process that imports this file and looks for the class.
exec(compile(source.replace(backends, backends + '    ("tutti", "cpu"),\n'), path, "exec"))
