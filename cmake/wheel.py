"""Packs the built extension module, the Python package and the programs into a wheel.

    python cmake/wheel.py BUILD_DIR [OUT_DIR]     (OUT_DIR: BUILD_DIR/wheels)

The programs go to the environment's bin/. The wheel is for this Python and this platform, and needs torch 2.13 and the
system libraries that the build linked (OpenCL loader, libwebsockets ...): `flagos doctor` names what is missing.
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAME = "flagos_devtools"


def version():
    text = open(os.path.join(ROOT, "CMakeLists.txt")).read()
    return re.search(r"project\(flagos_devtools VERSION (\S+)", text).group(1)


def tree(folder):
    """(path in the wheel, path on disk) of the package's Python files."""
    for base, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.endswith(".py"):
                full = os.path.join(base, name)
                yield os.path.join("flagos", os.path.relpath(full, folder)), full


def metadata(tag):
    readme = open(os.path.join(ROOT, "README.md"), encoding="utf-8").read()
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: flagos-devtools\nVersion: {version()}\n"
                    "Summary: OpenCL devices as npu in PyTorch, and tools that show what they do\n"
                    "Requires-Python: >=3.10\nRequires-Dist: torch<2.14,>=2.13\nDescription-Content-Type: text/markdown\n\n" + readme,
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: flagos\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": "[torch.backends]\nflagos = flagos:_autoload\n",
        "LICENSE": open(os.path.join(ROOT, "LICENSE"), encoding="utf-8").read(),
    }


def pack(build, out):
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    tag = f"{python}-{python}-{re.sub(r'[-.]', '_', sysconfig.get_platform())}"
    info, data = f"{NAME}-{version()}.dist-info", f"{NAME}-{version()}.data"
    os.makedirs(out, exist_ok=True)
    wheel = os.path.join(out, f"{NAME}-{version()}-{tag}.whl")
    with tempfile.TemporaryDirectory() as stage:
        subprocess.run(["cmake", "--install", build, "--component", "wheel", "--strip", "--prefix", stage], check=True,
                       stdout=subprocess.DEVNULL)
        files = dict(tree(os.path.join(ROOT, "runtime", "python", "flagos")))
        module = "_C" + sysconfig.get_config_var("EXT_SUFFIX")
        files[f"flagos/{module}"] = os.path.join(stage, "flagos", module)
        for program in sorted(os.listdir(os.path.join(stage, "bin"))):
            files[f"{data}/scripts/{program}"] = os.path.join(stage, "bin", program)
        record = []
        with zipfile.ZipFile(wheel + ".part", "w", zipfile.ZIP_DEFLATED) as archive:

            def add(path, content, mode):
                entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))  # the same input gives the same bytes
                entry.external_attr = (0o100000 | mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record.append(f"{path},sha256={digest},{len(content)}")

            for path, disk in files.items():
                with open(disk, "rb") as file:
                    add(path, file.read(), 0o755 if "/scripts/" in path else 0o644)
            for name, text in metadata(tag).items():
                add(f"{info}/{name}", text.encode(), 0o644)
            record.append(f"{info}/RECORD,,")
            add(f"{info}/RECORD", ("\n".join(record) + "\n").encode(), 0o644)
    os.replace(wheel + ".part", wheel)
    return wheel


if __name__ == "__main__":
    folder = os.path.abspath(sys.argv[1])
    print(pack(folder, os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else os.path.join(folder, "wheels")))
