"""Daemons that a test starts for all cases of a class."""
import subprocess


def start_daemon(case, command, said, environment):
    """`said`: a file for all that it says. Ends with the cases of the class `case`."""
    with open(said, "w", encoding="utf-8") as output:
        process = subprocess.Popen([*map(str, command)], env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output)

    def stop():
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    case.addClassCleanup(stop)
