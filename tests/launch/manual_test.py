"""Help, man pages and completions, which the program makes of one description of its command line."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from cli_case import TUTTI, CliCase, main

COMMANDS = ("run", "launch", "bench", "explain", "simulate", "doctor", "status", "trace", "completion")


class Manual(CliCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([TUTTI, "manual", cls.folder.name], check=True, timeout=60)
        cls.pages = pathlib.Path(cls.folder.name) / "man"
        cls.scripts = pathlib.Path(cls.folder.name) / "completion"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_command_has_a_page_with_all_of_its_flags(self):
        names = {file.name for file in self.pages.iterdir()}
        self.assertEqual(names, {"tutti.1", *(f"tutti-{command}.1" for command in COMMANDS)})
        for command in COMMANDS:
            page = (self.pages / f"tutti-{command}.1").read_text().replace("\\-", "-")
            said = self.tutti(command, "--help").stdout
            flags = set(re.findall(r"(?m)^  (--?[a-z][a-z-]*)", said)) | set(re.findall(r", (--?[a-zA-Z][a-z-]*)", said))
            self.assertIn("--help", flags)
            for flag in flags:
                self.assertIn(f"\\fB{flag}\\fR", page, command)
            for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"):
                self.assertIn(f".SH {section}\n", page)
        self.assertIn("TUTTI_TRANSPORT", (self.pages / "tutti.1").read_text())

    def test_formatters_have_nothing_to_complain_about(self):
        found = False
        for file in sorted(self.pages.iterdir()):
            if shutil.which("man"):
                found = True
                done = subprocess.run(["man", "--warnings", "-l", str(file)], capture_output=True, text=True, timeout=60,
                                      env=dict(os.environ, MANPAGER="cat", LC_ALL="C.UTF-8"), check=True)
                self.assertEqual(done.stderr, "", file.name)
                self.assertIn("SYNOPSIS", done.stdout)
            if shutil.which("mandoc"):
                found = True
                done = subprocess.run(["mandoc", "-Tlint", str(file)], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(done.stdout, "", file.name)
        if not found:
            self.skipTest("neither man nor mandoc is here")

    def test_no_line_of_help_is_wider_than_a_terminal_is_made(self):
        for command in COMMANDS:
            for line in self.tutti(command, "--help").stdout.splitlines():
                self.assertLessEqual(len(line), 100, line)

    @staticmethod
    def with_program(**more):
        """The scripts ask the program that is in the search path."""
        return {**os.environ, "PATH": f"{pathlib.Path(TUTTI).resolve().parent}:{os.environ['PATH']}", **more}

    def complete(self, *words):
        """What bash proposes for the last of the words."""
        script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tutti 2>/dev/null; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, "bash", str(self.scripts / "tutti"), "tutti", *words],
                              capture_output=True, text=True, timeout=60, check=True, cwd=self.folder.name, env=self.with_program())
        return set(done.stdout.split())

    def test_bash_completes_commands_flags_and_values(self):
        self.assertLessEqual({*COMMANDS, "help", "version"}, self.complete(""))
        self.assertEqual(self.complete("be"), {"bench"})
        self.assertEqual(self.complete("help", "do"), {"doctor"})
        self.assertEqual(self.complete("run", "--tra"), {"--transport"})
        self.assertEqual(self.complete("run", "--nproc"), {"--nproc-per-node"})
        self.assertEqual(self.complete("run", "--transport", ""), {"auto", "shm", "tcp"})
        self.assertEqual(self.complete("run", "--transport", "=", "t"), {"tcp"})
        self.assertEqual(self.complete("bench", "all_g"), {"all_gather"})
        self.assertEqual(self.complete("bench", "broadcast,all_g"), {"broadcast,all_gather"})
        self.assertEqual(self.complete("bench", "all_reduce", "--dtype", "b"), {"bool", "bfloat16"})
        self.assertEqual(self.complete("bench", "all_reduce", "--dtype", "float32,bf"), {"float32,bfloat16"})
        self.assertEqual(self.complete("bench", "all_reduce", "-o", "b"), {"band", "bor", "bxor"})
        self.assertEqual(self.complete("explain", "--algorithm", "recursive_d"), {"recursive_doubling"})
        self.assertEqual(self.complete("completion", ""), {"bash", "zsh", "fish"})

    def test_bash_completes_the_program_and_then_its_files(self):
        (pathlib.Path(self.folder.name) / "some_file").touch()
        self.assertIn("true", self.complete("run", "-n", "2", "tru"))
        self.assertEqual(self.complete("run", "-n", "2", "true", "some_"), {"some_file"})
        self.assertEqual(self.complete("run", "--hostfile", "some_"), {"some_file"})
        self.assertEqual(self.complete("trace", "some_"), {"some_file"})

    def test_other_shells_can_read_their_scripts(self):
        for shell, name in (("zsh", "_tutti"), ("fish", "tutti.fish")):
            if shutil.which(shell):
                done = subprocess.run([shell, "-n", str(self.scripts / name)], capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), shell)
            else:
                print(f"left out: cli_manual_test, {shell}: it is not installed", flush=True)
        if shutil.which("fish"):
            script = f"source {self.scripts / 'tutti.fish'}; complete -C 'tutti bench all_reduce --dtype bf'"
            done = subprocess.run(["fish", "-c", script], capture_output=True, text=True, timeout=60, check=True,
                                  env=self.with_program(HOME=self.folder.name))
            self.assertIn("bfloat16", done.stdout)

    def test_the_program_proposes_words_with_their_explanations_and_says_what_else_there_is(self):
        def proposed(*words):
            done = self.tutti("__complete", *words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout.splitlines()
        self.assertEqual(proposed("run", "--transport=s"), ["--transport=shm"])
        self.assertEqual(proposed("bench", "--dtype=int8,fl"), [
            *(f"--dtype=int8,float{kind}" for kind in ("16", "32", "64", "8_e4m3fn", "8_e5m2")), ":list"])
        [flag] = proposed("bench", "--seco")
        self.assertRegex(flag, r"^--seconds\t[a-z]")
        self.assertEqual(proposed("trace", "--torch", ""), [":folders"])
        self.assertEqual(proposed("run", "-n", "2", ""), [":program"])
        self.assertEqual(proposed("run", "-n", "2", "--", ""), [":program"])
        for words in (["run", "-n", "2", "true"], ["run", "--np", "=", "2", "--", "true"], ["run", "--np=2", "true", "-n"]):
            at = words.index("true") + 1
            self.assertEqual(proposed(*words, "--tra"), [f":arguments {at}"], words)
        self.assertEqual(proposed("version", ""), [])
        self.assertEqual(proposed("frobnicate", ""), [])
        self.assertIn("run", [line.partition("\t")[0] for line in proposed()])

    def test_the_program_prints_what_is_installed(self):
        for shell, name in (("bash", "tutti"), ("zsh", "_tutti"), ("fish", "tutti.fish")):
            self.assertEqual(self.tutti("completion", shell).stdout, (self.scripts / name).read_text())


class DidYouMean(CliCase):
    def test_wrong_words_are_answered_by_the_right_ones_with_status_2(self):
        with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
            hosts.write("localhost slot=2\n")
            hosts.flush()
            for words, meant in ((["bnech"], '"bench"'), (["run", "--timeot", "3", "true"], "--timeout"),
                                 (["bench", "allreduce"], '"all_reduce"'), (["bench", "bcast"], '"broadcast"'),
                                 (["bench", "all_reduce", "-d", "float"], '"float32"'),
                                 (["bench", "all_reduce", "-o", "summ"], '"sum"'),
                                 (["bench", "all_reduce", "--against", "openmp"], '"openmpi"'),
                                 (["bench", "all_reduce", "--transport", "tpc"], '"tcp"'),
                                 (["explain", "allgather"], '"all_gather"'),
                                 (["explain", "all_reduce", "--algorithm", "rnig"], '"ring"'),
                                 (["explain", "quantized_all_reduce", "--type", "int9"], '"int8"'),
                                 (["run", "--color", "allways", "true"], '"always"'),
                                 (["run", "--hostfile", hosts.name, "true"], '"slots"'),
                                 (["run", "--hostfil", hosts.name, "true"], "--hostfile"),
                                 (["completion", "bsh"], '"bash"')):
                with self.subTest(words=words):
                    done = self.tutti(*words)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(f"did you mean {meant}?", done.stderr)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertEqual(done.stdout, "")

    def test_words_that_are_near_to_nothing_get_no_guess(self):
        for words in (["frobnicate"], ["run", "--frobnicate", "true"], ["bench", "frobnicate"], ["doctor", "frobnicate"],
                      ["bench"], ["run"], ["trace", "/no/such/file"], ["bench", "all_reduce", "-n", "many"]):
            with self.subTest(words=words):
                done = self.tutti(*words)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertNotIn("did you mean", done.stderr)

    def test_variables_and_their_values_are_guessed_too(self):
        said = self.tutti("doctor", env={"TUTTI_TRANSPORT": "tpc"})
        self.assertEqual(said.returncode, 1)
        self.assertIn('did you mean "tcp"?', re.sub(r"\s+", " ", said.stdout))
        said = self.tutti("doctor", env={"TUTTI_TRANSPROT": "tcp"}).stdout
        self.assertIn("did you mean TUTTI_TRANSPORT?", re.sub(r"\s+", " ", said))
        done = self.tutti("run", "-n", "1", TUTTI, "doctor", "--env", env={"TUTTI_TUNE": "remesure"})
        self.assertNotIn("Traceback", done.stderr)


class Doctor(CliCase):
    def test_only_a_terminal_gets_colours(self):
        self.assertNotIn("\033", self.tutti("doctor").stdout)
        if shutil.which("script"):
            def on_a_terminal(**env):
                done = subprocess.run(["script", "-qec", f"'{TUTTI}' doctor", "/dev/null"], capture_output=True, text=True,
                                      timeout=60, check=False, stdin=subprocess.DEVNULL,
                                      env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **env})
                return done.stdout
            self.assertIn("\033[32mok", on_a_terminal())
            self.assertNotIn("\033[", on_a_terminal(NO_COLOR="1"))

    def test_what_is_well_says_what_it_was_compared_with(self):
        said = self.tutti("doctor").stdout
        self.assertIn("compared with: at least 1024", said)
        for line in said.splitlines():
            self.assertLessEqual(len(line.split("  ")[-1]), 400)


if __name__ == "__main__":
    main("cli_manual_test")
