"""Compiles wrong_calls.cpp, once, and compares the sentences of GCC's errors with those that its lines name.
Usage: wrong_calls_test.py SOURCE COMPILER"""
import pathlib
import re
import subprocess
import sys

source, compiler = pathlib.Path(sys.argv[1]), sys.argv[2]
if "__clang__" in subprocess.run([compiler, "-dM", "-E", "-xc++", "/dev/null"], capture_output=True, text=True).stdout:
    print("left out: clang words errors in another way than GCC")
    sys.exit(77)
file = source / "tests" / "house" / "wrong_calls.cpp"
done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-I", source / "include", file],
                      capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin"})

said, line = {}, 0  # sentences by line; GCC names the line that calls in front of the error in a header
for text in done.stderr.splitlines():
    if here := re.search(r"wrong_calls\.cpp:(\d+):\d+:", text):
        line = int(here[1])
    if error := re.search(r"error: (.*)", text):
        said.setdefault(line, []).append(error[1])
        line = 0

failures, rows = [], 0
for number, text in enumerate(file.read_text().splitlines(), 1):
    sentences = said.pop(number, [])
    if expected := re.search(r"// says: (.*)", text):
        rows += 1
        if not (len(sentences) == 1 and all(part in sentences[0] for part in ("tutti: ", expected[1], ": expected "))):
            failures.append(f"line {number}: {text.strip()}\n    the compiler says {sentences}")
    elif sentences:
        failures.append(f"line {number} is right, but the compiler says {sentences}")
failures += [f"an error that no line causes: {sentences}" for sentences in said.values()]
print("\n".join(failures) or f"wrong calls: {rows} of {rows} say why")
sys.exit(bool(failures or rows == 0))
