"""Virtual environments of programs that need packages from PyPI."""
import pathlib
import subprocess
import venv


def python_with(package, folder, requirements):
    """The Python of the virtual environment `folder` with the packages of the file `requirements`, which `package` is
    one of. Creates it if it does not exist."""
    folder = pathlib.Path(folder).expanduser()
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-c", f"import {package}"], stderr=subprocess.DEVNULL).returncode:
        print(f"installing {package} in {folder}", flush=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
    return python
