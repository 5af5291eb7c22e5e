"""Another project publishes a distribution named `tutti`, with a package of the same name. In one environment the files of the two
overwrite each other, so that an import is an error there, and says what to do. libtutti-torch has a copy of this file."""
import os
import sys


def refuse() -> None:
    """Raises ImportError where a folder of sys.path has the metadata of a distribution `tutti`: ours are named libtutti…"""
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")
        except OSError:  # a zip file, or no folder at all
            continue
        for name in names:
            project, _, rest = name.partition("-")
            if project.lower() == "tutti" and rest.endswith((".dist-info", ".egg-info")):
                raise ImportError(
                    f"two distributions bring a package `tutti` here: libtutti, which {os.path.dirname(__file__)} belongs to, and a "
                    f"stranger's, tutti {rest.rpartition('.')[0]} in {folder or '.'}; their files overwrite each other; "
                    "type: pip uninstall -y tutti libtutti; pip install libtutti")
