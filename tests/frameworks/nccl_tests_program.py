"""nccl-tests, NVIDIA's own suite for NCCL, on libtutti-nccl without a GPU: fetched at the commit below, compiled over
cuda_runtime/ (its README says how), each program run with its ranks in one thread, in several, and from a graph. A program
compares every result itself.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import small

KNOWN = ("NCCL's device API (`-D`) is not in libtutti-nccl, and float8 is left out; `NCCL_TESTS=/a/clone` takes the "
         "sources from there where GitHub is out of reach")
ADDRESS, TAG, COMMIT = "https://github.com/NVIDIA/nccl-tests", "v2.19.6", "a0b82b2260cf5152b9f8c061bbf7eaf0ba096432"
PROGRAMS = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce", "alltoall", "alltoallv", "scatter", "gather",
            "sendrecv", "hypercube")
SHARED = ("os/linux.cc", "src/timer.cc", "src/util.cu", "src/common.cu", "verifiable/verifiable.cu")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
#: How the four ranks run.
WAYS = {"one thread": ["-g", "4"], "threads": ["-t", "4", "-g", "1"], "both": ["-t", "2", "-g", "2"],
        "a graph": ["-t", "4", "-g", "1", "-G", "2"], "blocking": ["-t", "4", "-g", "1", "-z", "1"]}
#: Sends in one step what has come in the step before, so its steps must not be in one group: one rank a thread.
STEPWISE = ("hypercube",)
HERE = pathlib.Path(__file__).resolve().parent


def skip(why: str) -> None:
    print(small.skipped(why), flush=True)
    sys.exit(0)


def fetch(folder: pathlib.Path) -> None:
    """The sources at COMMIT, unless they are there."""
    def head() -> str:
        done = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 and (folder / ".git").exists() else ""

    if head() != COMMIT:
        source = os.environ.get("NCCL_TESTS", ADDRESS)
        done = subprocess.run(["git", "clone", "--quiet", "--depth", "1", "--branch", TAG, source, str(folder)],
                              capture_output=True, text=True, timeout=120, env=os.environ | {"GIT_TERMINAL_PROMPT": "0"})
        if done.returncode != 0:
            skip(f"git cannot clone {source} ({done.stderr.strip().splitlines()[-1]}); NCCL_TESTS names a clone of your own")
    if head() != COMMIT:
        skip(f"{folder} is at {head()}, expected {COMMIT} ({TAG})")
    subprocess.run(["git", "-C", str(folder), "checkout", "--quiet", "--force", COMMIT], check=True)
    kernels = folder / "verifiable/verifiable.cu"
    text = kernels.read_text()
    for pattern, standing_in, times in ((r"\(void const\*\)&([^;]*);", r"standin_kernel<&\1>();", 10),
                                        (r'asm volatile\("red\.global\.add\.u64.*',
                                         "__atomic_fetch_add(bad_elt_n, bad, __ATOMIC_RELAXED);", 2),
                                        (r"sweep<<<1,512>>>\(\);", "", 1)):
        text, found = re.subn(pattern, standing_in, text)
        assert found >= times, (pattern, found)
    kernels.write_text(text)


def build(sources: pathlib.Path, folder: pathlib.Path, libraries: list[str]) -> None:
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++17", "-O1", "-w", "-DNCCL_OS_LINUX", "-I", str(HERE / "cuda_runtime"), "-I", str(sources / "src"),
               "-I", str(sources / "os"), "-x", "c++", "-c"]

    def compile_one(source: str) -> None:
        subprocess.run([*command, str(sources / source), "-o", str(folder / (pathlib.Path(source).name + ".o"))], check=True)

    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        list(pool.map(compile_one, [*SHARED, *(f"src/{name}.cu" for name in PROGRAMS)]))
    shared = [str(folder / (pathlib.Path(source).name + ".o")) for source in SHARED]
    for name in PROGRAMS:
        paths = [f"-Wl,-rpath,{pathlib.Path(library).parent}" for library in libraries]
        subprocess.run([compiler, str(folder / f"{name}.cu.o"), *shared, *libraries, *paths, "-pthread", "-o",
                        str(folder / f"{name}_perf")], check=True)


def run(folder: pathlib.Path, name: str, way: str) -> int:
    """How many results were compared. RuntimeError where the program finds one wrong."""
    command = [str(folder / f"{name}_perf"), *WAYS[way], "-b", "4", "-e", "256K", "-f", "16", "-n", "2", "-w", "1"]
    if name in REDUCING:
        command += ["-d", "all", "-o", "all"]
    done = subprocess.run(["timeout", "--kill-after", "5", "60", *command], capture_output=True, text=True,
                          env=os.environ | {"FAKE_CUDA_DEVICES": "8"})
    rows = re.findall(r"^ +\d+ +\d+ +(?:u?int|half|float|double|bfloat).*$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or "# Out of bounds values : 0 OK" not in done.stdout or not rows:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    return 2 * len(rows)  # out of place and in place


def main() -> None:
    folder = pathlib.Path(os.environ["FRAMEWORKS_FOLDER"]).resolve() / "nccl-tests"
    folder.mkdir(parents=True, exist_ok=True)
    fetch(folder / "sources")
    build(folder / "sources", folder, [os.environ["VLLM_NCCL_SO_PATH"], os.environ["CUDA_FAKE"]])
    compared = sum(run(folder, name, way) for name in PROGRAMS for way, flags in WAYS.items()
                   if name not in STEPWISE or ["-g", "1"] == flags[2:4])
    print(small.passed(TAG.removeprefix("v"), f"{len(PROGRAMS)} programs with four ranks, in {len(WAYS)} ways ({', '.join(WAYS)}), all "
                       f"operators and all types but float8: {compared} results"), flush=True)


if __name__ == "__main__":
    main()
