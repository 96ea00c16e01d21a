"""`./dev demo`: trains examples/train_digits.py on npu:0 and shows, while it runs, what FlagOS knows about it.

Every word shown comes from the running process or from the installed programs; nothing is replayed.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build", "bin")
SCRIPT = os.path.join(ROOT, "examples", "train_digits.py")


def die(text):
    print(f"demo: {text}", file=sys.stderr)
    sys.exit(1)


def title(text):
    print(f"\n=== {text}", flush=True)


def show(*command):
    """Runs a program of ours and prints what it prints; its failure is the demo's."""
    print(f"$ {' '.join(os.path.relpath(c, ROOT) if c.startswith(ROOT) else c for c in command)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, end="", flush=True)
    if done.returncode not in (0, 1):
        die(f"{os.path.basename(command[0])} ended with exit code {done.returncode}")
    return done.stdout


def line_of(text):
    with open(SCRIPT) as f:
        for number, line in enumerate(f, 1):
            if text in line:
                return number
    die(f"{SCRIPT} has no line with {text}")


def wait_for_sites(pid, process, seconds=120):
    """Until the process has announced itself and counted work on the convolution's line."""
    end = time.monotonic() + seconds
    line = line_of("self.conv2(x)")
    while time.monotonic() < end:
        if process.poll() is not None:
            die(f"the training ended early with exit code {process.returncode}")
        top = subprocess.run([os.path.join(BIN, "flagos"), "top", "--once", "--json", "--pid", str(pid)],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if top.returncode == 0:
            sites = [s for p in json.loads(top.stdout)["processes"] for s in p["sites"]]
            if any(s["line"] == line and s["calls"] > 20 for s in sites):
                return
        time.sleep(0.2)
    die(f"after {seconds} s the training process has not announced any work on the device")


def train(device, folder, extra, env=None):
    out = os.path.join(folder, device.replace(":", "") + ".json")
    command = [sys.executable, SCRIPT, "--device", device, "--json", out, *extra]
    log = open(os.path.join(folder, "train.log"), "w")
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(env or {})}, stdout=log, stderr=subprocess.STDOUT), out


def screenshot(pid, folder):
    picture = os.path.join(ROOT, "build", "flagos-top.png")
    command = [os.path.join(BIN, "flagos-top"), "--pid", str(pid), "--screenshot", picture]
    if not os.environ.get("DISPLAY"):
        if not shutil.which("xvfb-run"):
            die("there is no display and no xvfb-run: run ./dev setup")
        command = ["xvfb-run", "-a", "-s", "-screen 0 1600x1000x24", *command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        die(f"flagos-top made no picture: {done.stdout.strip()}")
    return picture


def main():
    folder = tempfile.mkdtemp(prefix="flagos-demo-")
    watched = os.path.join(folder, "watched")     # the training goes on while this file is there
    open(watched, "w").close()
    process, result = train("npu:0", folder, ["--epochs", "20", "--while-exists", watched],
                            {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "forbid"})
    try:
        title(f"training on npu:0 (pid {process.pid}), OpenCL kernels only, no fallback allowed")
        wait_for_sites(process.pid, process)

        title("1. the devices of this machine")
        show(os.path.join(BIN, "flagos"), "devices", "--why")

        title("2. the same, on the lines of the program while it runs")
        show(os.path.join(BIN, "flagos-lsp"), "--check", SCRIPT, "--attach", str(process.pid))

        title("3. why that kernel")
        show(os.path.join(BIN, "flagos"), "explain", "--at", f"{os.path.relpath(SCRIPT, ROOT)}:{line_of('self.conv2(x)')}",
             "--pid", str(process.pid))

        title("4. flagos-top, looking at this run")
        print(screenshot(process.pid, folder))
        if process.poll() is not None:
            die("the training ended before the monitors had looked at it")
        os.unlink(watched)
        process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait()
    if process.returncode != 0:
        with open(os.path.join(folder, "train.log")) as f:
            die(f"the training failed with exit code {process.returncode}:\n{f.read()[-3000:]}")

    with open(result) as f:
        npu = json.load(f)
    title("5. the result, beside the same run on the CPU")
    reference, result = train("cpu", folder, ["--epochs", str(npu["epochs"])])
    reference.wait()
    if reference.returncode != 0:
        die(f"the CPU run failed with exit code {reference.returncode}")
    with open(result) as f:
        cpu = json.load(f)

    worst = max(abs(a - b) / abs(b) for a, b in zip(npu["losses"], cpu["losses"]))
    print(f"{npu['epochs']} epochs; first {len(cpu['losses'])} losses differ by at most {worst:.1e} (relative)")
    if worst > 1e-3:
        die("the losses on npu:0 and on the CPU differ by more than 1e-3")
    if npu["correct"] < 0.96 or abs(npu["correct"] - cpu["correct"]) > 0.01:
        die(f"npu:0 read {100 * npu['correct']:.2f} % of the test images correctly, the CPU {100 * cpu['correct']:.2f} %")
    print("\nNext:\n"
          "  code --install-extension build/flagos-devtools.vsix    # the same facts in the editor\n"
          "  build/bin/flagos-top                                   # watch a run in a window\n"
          "  build/bin/flagos explain aten::mm --shapes \"[1024,512] [512,2048]\" --dtype float32   # ask why, without running\n")
    print(f"test accuracy: {100 * npu['correct']:.2f} % (cpu {100 * cpu['correct']:.2f} %)")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
