"""Writes libtutti-VERSION.dist-info into a folder, from pyproject.toml: what importlib.metadata and pip tell of the package."""
import pathlib
import sys
import tomllib

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
folder = pathlib.Path(sys.argv[1], f"{project['name']}-{project['version']}.dist-info")
folder.mkdir(parents=True, exist_ok=True)
lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
         f"Summary: {project['description']}", f"Requires-Python: {project['requires-python']}"]
lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
(folder / "METADATA").write_text("\n".join(lines) + "\n")
(folder / "INSTALLER").write_text("dpkg\n")
