"""The programs of docs/deploy.md, which are tried as they stand there."""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(heading, number=0, language="python"):
    """A block below a heading of the page."""
    page = (ROOT / "docs/deploy.md").read_text()
    section = re.search(rf"(?ms)^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page).group(1)
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", section)[number]


def run(heading, number=0, through=(), **more):
    """Runs it with this Python, below the command `through`; returns what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "program.py"
        file.write_text(program(heading, number))
        done = subprocess.run([*map(str, through), sys.executable, file], capture_output=True, text=True, timeout=200,
                              check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
