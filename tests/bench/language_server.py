"""flagos-lsp: start, hover, edits, whole trees of files, memory; hover beside pyright's, edits beside ruff's and pyright's,
on the same files in the same run."""
import functools
import glob
import json
import os
import statistics
import subprocess
import sysconfig
import tempfile
import time

from figures import BIN, figure, median_of, python
from servers import Server

SIZES = (200, 2000, 20000)
PLACES = ("top", "middle", "end")
HOVERS, EDITS = 40, 10   # per place

BLOCK = '''
class Net{n}(nn.Module):
    def __init__(self, width: int = 64, device: str = "npu:0"):
        super().__init__()
        self.device = torch.device(device)
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, 10)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x):
        x = torch.relu(self.first(x * self.scale))
        return self.second(x)


def train{n}(steps: int = 10, width: int = 64):
    device = torch.device("npu:0" if torch.accelerator.is_available() else "cpu")
    net = Net{n}(width).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        x = torch.randn(32, width, device=device)
        y = torch.randint(10, (32,)).to(device)
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()

'''


def source(lines):
    text, n = "import torch\nfrom torch import nn\n", 0
    while text.count("\n") < lines:
        text += BLOCK.format(n=n)
        n += 1
    return text


def rows_of(text, place):
    """Line numbers of one block near a place."""
    rows = text.split("\n")
    starts = [i for i, row in enumerate(rows) if row.startswith("class Net")]
    chosen = {"top": starts[0], "middle": starts[len(starts) // 2], "end": starts[-1]}[place]
    return [i for i in range(chosen, min(chosen + 30, len(rows))) if rows[i].strip()], rows


def quantile(values, q):
    return statistics.quantiles(values, n=100, method="inclusive")[q - 1]


@functools.cache
def times(name, size):
    """Hover and edit times of one server on one file, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        text = source(size)
        path = os.path.join(folder, f"bench_{size}.py")
        with open(path, "w") as f:
            f.write(text)
        server = Server(name, folder, options={"index": False} if name == "flagos" else None)
        uri = server.open(path, text)
        hover, edit = [], []
        for place in PLACES:
            lines, rows = rows_of(text, place)
            for i in range(HOVERS):
                row = lines[i % len(lines)]
                column = len(rows[row]) - len(rows[row].lstrip()) + 4 + i % 7
                if name != "ruff":
                    hover.append(server.hover(uri, row, column))
            row = next(r for r in lines if "steps: int = 10" in rows[r])
            column = rows[row].index("= 10") + 2
            for i in range(EDITS):
                edit.append(server.edit(uri, row, column, column + 2, str(11 + i % 80)))
        server.close()
    return hover, edit


def register_times():
    for size in SIZES:
        for q in (50, 95):
            @figure(f"lsp.hover.{size}.p{q}", "ms", 5)
            def hover(size=size, q=q):
                return quantile(times("flagos", size)[0], q), "pyright", quantile(times("pyright", size)[0], q)

            for rival in ("ruff", "pyright"):
                suffix = "" if rival == "ruff" else ".pyright"

                @figure(f"lsp.edit.{size}.p{q}{suffix}", "ms", 500 if size > 2000 else 50)
                def edit(size=size, q=q, rival=rival):
                    return quantile(times("flagos", size)[1], q), rival, quantile(times(rival, size)[1], q)


@figure("lsp.start", "ms", 50)
def lsp_start():
    def once():
        server = Server("flagos")
        server.close()
        return (server.ready - server.started) * 1e3
    return median_of(once)


register_times()


@figure("lsp.hover.ratio", "x", 1 / 3)
def hover_ratio():
    """95th percentile of hover at 2,000 lines over pyright's."""
    return quantile(times("flagos", 2000)[0], 95), "pyright", quantile(times("pyright", 2000)[0], 95)


@functools.cache
def trees():
    """The standard library and torch: folders, files, bytes."""
    torch = python("import os, torch; print(os.path.dirname(torch.__file__))", {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).strip()
    folders = [sysconfig.get_paths()["stdlib"], torch]
    files = [f for folder in folders for f in glob.glob(os.path.join(folder, "**", "*.py"), recursive=True) if folder == torch or "site-packages" not in f]
    return folders, files, sum(os.path.getsize(f) for f in files)


def indexed(message):
    return message.get("method") == "$/progress" and message["params"]["value"]["kind"] == "end"


@functools.cache
def real_edits(name):
    """Milliseconds from an edit to the diagnostics, in a dozen real files of about 2,000 lines: 3 places, 4 edits each.
    The folder of the file's library is what is open in the editor, and it has been read."""
    chosen = []
    for path in sorted(trees()[1]):
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        if 1800 <= text.count("\n") <= 2200 and "\r" not in text:
            chosen.append((path, text))
    chosen = chosen[::max(1, len(chosen) // 12)][:12]
    assert len(chosen) == 12
    out = []
    for path, text in chosen:
        root = next(f for f in trees()[0] if path.startswith(f + os.sep))
        server = Server(name, root, capabilities={"window": {"workDoneProgress": True}} if name == "flagos" else None)
        if name == "flagos":
            server.until(indexed)
        uri = server.open(path, text)
        rows = text.split("\n")
        for at in (len(rows) // 20, len(rows) // 2, len(rows) - 20):
            end = len(rows[at].encode("utf-16-le")) // 2
            for i in range(4):
                out.append(server.edit(uri, at, end, end + (2 if i else 0), ("  ", " \t")[i % 2]))
        server.close()
    return out


@figure("lsp.edit.real.p50", "ms", 50)
def real_edit_median():
    return quantile(real_edits("flagos"), 50), "ruff", quantile(real_edits("ruff"), 50)


@figure("lsp.edit.real.p95", "ms", 50)
def real_edit_tail():
    return quantile(real_edits("flagos"), 95), "ruff", quantile(real_edits("ruff"), 95)


@functools.cache
def checked():
    """Seconds and peak resident bytes of one `--check` over both trees."""
    _, files, _ = trees()
    start = time.perf_counter()
    process = subprocess.Popen([os.path.join(BIN, "flagos-lsp"), "--check", *files, "--json", "--devices", "npu:0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return time.perf_counter() - start, usage.ru_maxrss * 1024


@figure("lsp.analysis", "MB/s", 3, better="higher")
def analysis_speed():
    return trees()[2] / 1e6 / checked()[0]


@figure("lsp.analysis.rss", "MB", 400)
def analysis_memory():
    return checked()[1] / 1e6


@figure("lsp.index", "s", 15)
def index_time():
    """Both trees read in the background by a server that has one core."""
    folders, files, _ = trees()
    start = time.perf_counter()
    server = Server("flagos", capabilities={"window": {"workDoneProgress": True}}, cores={min(os.sched_getaffinity(0))})
    added = [{"uri": "file://" + f, "name": os.path.basename(f)} for f in folders]
    server.send({"method": "workspace/didChangeWorkspaceFolders", "params": {"event": {"added": added, "removed": []}}})
    end = server.until(indexed)
    took = time.perf_counter() - start
    server.close()
    done = int(end["params"]["value"]["message"].split("/")[0])
    assert done >= 2700, f"only {done} of {len(files)} files were read"
    return took


@figure("lsp.memory.200", "MB", 100)
def memory_of_open_files():
    """Resident when 200 files of the standard library and torch are open, their diagnostics are out and nothing happens."""
    _, files, _ = trees()
    chosen = sorted(f for f in files if os.path.getsize(f) > 2000)
    chosen = chosen[::max(1, len(chosen) // 200)][:200]
    server = Server("flagos", options={"index": False})
    for path in chosen:
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        server.open(path, text, wait=False)
    server.request("flagos/sync", {})
    time.sleep(3)   # what was freed goes back to the system when nothing happens
    memory = server.memory()
    server.close()
    assert len(chosen) == 200
    return memory / 1e6


def main():
    """All times as JSON, for looking closer than the figures do."""
    print(json.dumps({name: {size: dict(zip(("hover", "edit"), times(name, size))) for size in SIZES} for name in ("flagos", "pyright", "ruff")}))


if __name__ == "__main__":
    main()
