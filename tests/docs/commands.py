"""Commands of the pages: what is in a block of the console, and whether a command could be one without running it."""
import pathlib
import re
import shlex
import subprocess

import pages

# What a test must not run, by the first word. Their arguments are checked as far as they name something of ours.
NOT_RUN = {
    "make": "builds or tests all of it", "tools/install-deps": "installs packages", "apt-get": "installs packages",
    "apt": "installs packages", "dpkg": "installs packages", "pip": "installs packages", "docker": "installs a system",
    "debootstrap": "installs a system", "git": "needs a repository of the reader's", "ssh": "needs another host",
    "srun": "needs Slurm", "sbatch": "needs Slurm", "ulimit": "changes the session", "nvidia-smi": "needs a GPU",
    "sudo": "needs root",
}
# Programs that are not ours, and that a page may name.
OTHERS = set(NOT_RUN) | {
    "cat", "cc", "cd", "cmake", "cp", "ctest", "dmesg", "echo", "export", "g++", "gdb", "getent", "kill", "ldconfig", "ln",
    "ls", "mkdir", "mpirun", "mpiexec", "pkg-config", "python", "python3", "rm", "set", "source", ".", "ss", "tc", "torchrun",
    "torchfrtrace", "unzip", "man", "which", "ray", "kubectl", "accelerate", "deepspeed", "qemu-aarch64",
}


def commands(block):
    """[(command, [line of its output, ...]), ...] of a block of the console."""
    found = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0][:-1] + line, [])
        elif found and line.strip():
            found[-1][1].append(line)
    return found


def words(command):
    """The words of each simple command of a line, without what goes before its program."""
    command = re.sub(r"\$\([^()]*\)", "X", command).replace("…", "X")
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    found = [[]]
    for word in lexer:
        if set(word) <= set("();<>|&"):
            found.append([])
        elif found[-1] or not re.match(r"[A-Z_]+=", word):
            found[-1].append(word)
    return [each for each in found if each]


def flags_of(program, *subcommand):
    """{flag: whether a word follows it}, as the program's help has them."""
    text = subprocess.run([program, *subcommand, "--help"], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in text.splitlines():
        named = re.match(r"  (-[-\w, ]*?)(?: ([A-Z]\S*))?(?: {2,}|$)", line)  # "  -b, --begin SIZE     smallest size"
        if named:
            for flag in re.split(r",\s*", named.group(1)):
                found[flag.strip()] = bool(named.group(2))
    return found


class Checker:
    """Checks words of a command without running it; `build` is a build tree."""

    def __init__(self, build):
        self.tutti = pathlib.Path(build) / "bin/tutti"
        listed = subprocess.run([self.tutti, "--help"], capture_output=True, text=True, check=True).stdout
        self.subcommands = re.findall(r"^  (\w+) {2,}", listed.partition("Commands:")[2].partition("Flags:")[0], re.MULTILINE) + ["help"]
        self.flags = {"": {**flags_of(self.tutti), "--help": False}}
        for name in self.subcommands:
            if name != "help":
                self.flags[name] = flags_of(self.tutti, name)
        self.targets = set(re.findall(r"^([\w-]+):", (pages.ROOT / "Makefile").read_text(), re.MULTILINE))

    def fault(self, word_list):
        """What is wrong with a simple command, or None."""
        program, *rest = word_list
        name = program.removeprefix("build/bin/")
        if name == "tutti":
            return self.fault_of_tutti(rest)
        if name in ("make", "sudo") and name == "make":
            wrong = [word for word in rest if re.fullmatch(r"[a-z][\w-]*", word) and word not in self.targets]
            return f"make {wrong[0]}: the Makefile has no such target" if wrong else None
        if program in ("python", "python3") and rest[:1] == ["-m"] and rest[1].startswith("tutti"):
            package = pages.ROOT / "python" / rest[1].replace(".", "/")
            return None if package.exists() or package.with_suffix(".py").exists() else f"python has no module {rest[1]}"
        for word in word_list:
            if re.match(r"(tools|examples|bench|tests|docs|python|cmake)/", word) and not list(pages.ROOT.glob(word)):
                return f"{word}: there is no such file"
        if program in OTHERS or "/" in program or program == "tutti-backend-conformance":
            return None
        return f"{program}: neither a program of tutti's nor one that pages may name (tests/docs/commands.py)"

    def fault_of_tutti(self, rest):
        if not rest or rest[0] in self.flags[""]:
            return None
        if rest[0] not in self.subcommands:
            return f"tutti {rest[0]}: there is no such command"
        flags, index = self.flags.get(rest[0], {}), 1
        while index < len(rest):
            flag = rest[index].partition("=")[0]
            if flag.startswith("-") and flag != "--":
                if flag not in flags and flag[:2] not in flags:
                    return f"tutti {rest[0]} {flag}: there is no such flag"
                index += flags.get(flag, False) and "=" not in rest[index]
            elif rest[0] in ("run", "launch"):
                return None  # the rest is the program's
            index += 1
        return None
