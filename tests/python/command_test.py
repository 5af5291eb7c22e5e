"""The command in the installed package: the program, as `tutti` and as `python -m tutti`, and what is not in the package."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from rows import main

import tutti

PACKAGE = pathlib.Path(tutti.__file__).parent
COMMANDS = {"tutti": [str(pathlib.Path(sys.executable).with_name("tutti"))], "python -m tutti": [sys.executable, "-m", "tutti"]}


def run(*words, folder=None, **environment):
    """Without what a checkout may have set, and with no environment of Python's activated."""
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "XDG_CACHE_HOME")}
    return subprocess.run(words, capture_output=True, text=True, timeout=90, cwd=folder,
                          env={"PATH": "/usr/bin:/bin", **kept, **environment})


def copy_without(folder, *patterns):
    """The package in another folder, for PYTHONPATH."""
    shutil.copytree(PACKAGE, pathlib.Path(folder, "tutti"), ignore=shutil.ignore_patterns("__pycache__", *patterns))


class Command(unittest.TestCase):
    def test_both_ways_start_the_packages_program(self):
        for name, command in COMMANDS.items():
            with self.subTest(command=name):
                done = run(*command, "--version")
                self.assertEqual((done.returncode, done.stdout), (0, f"tutti {tutti.__version__}\n"), done.stderr)

    def test_man_pages_and_completions_are_where_the_environment_has_them(self):
        share = pathlib.Path(sys.prefix, "share")
        for file in ("man/man1/tutti.1", "man/man1/tutti-run.1", "bash-completion/completions/tutti",
                     "zsh/site-functions/_tutti", "fish/vendor_completions.d/tutti.fish"):
            self.assertIn("tutti", (share / file).read_text(), file)

    def test_the_programs_answers_and_statuses_are_its_own(self):
        for name, command in COMMANDS.items():
            with self.subTest(command=name):
                done = run(*command, "no-such-command")
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn('unknown command "no-such-command"', done.stderr)
                self.assertEqual(run(*command, "run", "-n", "2", "sh", "-c", "exit 7").returncode, 7)

    def test_a_script_gets_the_packages_interpreter(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "who.py").write_text("import sys, tutti\nprint(sys.executable)\n")
            done = run(*COMMANDS["tutti"], "run", "-n", "2", "--no-prefix", "who.py", folder=folder)
            self.assertEqual((done.returncode, done.stdout), (0, f"{sys.executable}\n" * 2), done.stderr)
            other = run(*COMMANDS["tutti"], "run", "-n", "1", "who.py", folder=folder, PYTHON_EXEC="/bin/false")
            self.assertEqual(other.returncode, 1)

    def test_a_package_without_its_program_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            copy_without(folder, "bin")
            done = run(*COMMANDS["python -m tutti"], "--version", PYTHONPATH=folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("/bin/tutti cannot be started: No such file or directory; install the package anew", done.stderr)

    def test_where_the_extra_is_not_installed_the_error_names_it(self):
        ask = "import sys, tutti.distributed as dist; dist.init_process_group(sys.argv[1])"
        with tempfile.TemporaryDirectory() as folder:
            extra = ("gloo", "hf_zmq", "rccl", "hccl", "xccl", "ucc")
            copy_without(folder, *(f"*backend-{name}.so" for name in extra))
            for backend in (*extra, "hf_barrier"):
                with self.subTest(backend=backend):
                    done = run(sys.executable, "-c", ask, backend, PYTHONPATH=folder, RANK="0", WORLD_SIZE="1",
                               MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
                    self.assertEqual(done.returncode, 1, done.stdout)
                    self.assertIn("pip install 'libtutti[backends]'", done.stderr)

    def test_a_strangers_distribution_of_the_same_name_is_an_error_that_names_both(self):
        for metadata in ("tutti-1.0.0.dist-info", "Tutti-1.0.0.egg-info"):
            with self.subTest(metadata=metadata), tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, metadata).mkdir()
                done = run(sys.executable, "-c", "import tutti", PYTHONPATH=folder)
                self.assertEqual(done.returncode, 1, done.stdout)
                for word in ("ImportError", "libtutti", str(PACKAGE), f"tutti 1.0.0 in {folder}", "pip install libtutti"):
                    self.assertIn(word, done.stderr)
                pathlib.Path(folder, metadata).rename(pathlib.Path(folder, "tutti_of_others-1.0.0.dist-info"))
                self.assertEqual(run(sys.executable, "-c", "import tutti", PYTHONPATH=folder).returncode, 0)

    def test_doctor_sees_the_backends_of_the_package(self):
        there = [file.stem.removeprefix("libtutti-backend-") for file in (PACKAGE / "lib/tutti/backends").glob("libtutti-backend-*")]
        done = run(*COMMANDS["tutti"], "doctor")
        line = next((line for line in done.stdout.splitlines() if " backends " in line), "")
        self.assertEqual(set(line.replace(",", "").split()[2:]), {"native", *there}, done.stdout + done.stderr)


if __name__ == "__main__":
    main("python_" + pathlib.Path(__file__).stem)
