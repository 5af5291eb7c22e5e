#!/usr/bin/env python3
"""Fields that a mutex guards are touched while it is held: clang's thread safety analysis of the sources that annotate
any (core/thread_safety.hpp). Usage: thread_safety.py SOURCE_DIR; status 77 where there is no clang."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SEEDED = '''
#include "core/biased_mutex.hpp"
class Counter {
 public:
    int next() { %s return ++count_; }
 private:
    tutti::%s mutex_;
    int count_ TUTTI_GUARDED_BY(mutex_) = 0;
};
int next() { static Counter counter; return counter.next(); }
'''


def find_clang():
    names = ["clang++"] + [f"clang++-{version}" for version in range(30, 13, -1)]
    return next((path for name in names if (path := shutil.which(name))), None)


def analyse(clang, source, file):
    command = [clang, "-std=c++20", "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety",
               f"-I{source}/include", f"-I{source}/src", str(file)]
    return subprocess.run(command, capture_output=True, text=True)


def annotated(source):
    """The .cpp files that define what an annotated header declares, or annotate something themselves."""
    files = []
    for file in sorted((source / "src").rglob("*.cpp")):
        header = file.with_suffix(".hpp")
        texts = [f.read_text() for f in (file, header) if f.exists()]
        if any(re.search(r"\bTUTTI_GUARDED_BY\(", text) for text in texts):
            files.append(file)
    return files


def main():
    source = pathlib.Path(sys.argv[1])
    clang = find_clang()
    if clang is None:
        print("left out: thread safety analysis: there is no clang on this machine")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        probe = pathlib.Path(folder) / "probe.cpp"
        for body, mutex, passes in (("const tutti::MutexLock lock(mutex_);", "Mutex", True), ("", "Mutex", False),
                                    ("const tutti::BiasedMutex::Lock lock(mutex_);", "BiasedMutex", True),
                                    ("if (!mutex_.try_lock()) return 0;", "BiasedMutex", False),
                                    ("", "BiasedMutex", False)):
            probe.write_text(SEEDED % (body, mutex))
            result = analyse(clang, source, probe)
            if (result.returncode == 0) != passes:
                print(f"the analysis {'refuses a right' if passes else 'accepts a wrong'} class:\n{result.stderr}")
                return 1
    files = annotated(source)
    bad = 0
    for file in files:
        result = analyse(clang, source, file)
        if result.returncode != 0:
            bad += 1
            print(result.stderr)
    print(f"{len(files)} files, of which {bad} touch what they should not")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
