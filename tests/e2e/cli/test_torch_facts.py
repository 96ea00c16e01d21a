"""torch.npu and `flagos devices --json` tell the same facts of a device, with the same sources."""
import json
import os
import subprocess
import sys

from conftest import ROOT

CODE = """
import json, torch
p = torch.npu.get_device_properties(0)
free, total = torch.npu.mem_get_info(0)
print(json.dumps({"name": torch.npu.get_device_name(0), "capability": torch.npu.get_device_capability(0), "stable_id": p.stable_id,
                  "units": p.multi_processor_count, "max": p.max_allocation, "dtypes": p.supported_dtypes, "sources": p.sources,
                  "missing": p.why_missing, "total_memory": p.total_memory, "free": free, "total": total}))
"""


def facts(**env):
    keep = {k: v for k, v in os.environ.items() if not k.startswith("FLAGOS_") or k in ("FLAGOS_CACHE_DIR", "FLAGOS_RUNTIME_DIR")}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300, env={**keep, **env}, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_device_two_faces(flagos_json):
    ours = facts()
    device = flagos_json("devices")["devices"][0]
    t = device["torch"]
    assert ours["name"] == t["name"]["value"] and ours["stable_id"] == t["stable_id"]["value"] == device["stable_id"]
    assert ours["capability"] == t["capability"]["value"] and ours["capability"] >= [1, 0]
    assert ours["units"] == t["compute_units"]["value"] and ours["max"] == t["max_allocation"]["value"]
    assert ours["dtypes"] == t["supported_dtypes"]["value"] == device["dtypes"]
    assert ours["sources"]["name"] == t["name"]["source"] and ours["sources"]["major"] == "opencl"
    memory = device["memory"]["shared" if device["kind"] in ("cpu", "integrated") else "dedicated"]
    assert ours["total_memory"] == memory["value"] and ours["sources"]["total_memory"] == memory["source"]
    assert 0 < ours["free"] <= ours["total"] == ours["total_memory"]
    # The program has used the device: its bandwidth is known now, unless the machine was too busy to measure.
    if device["bandwidth"]["value"]:
        assert device["bandwidth"]["source"] == "measured"


def test_a_limit_caps_what_is_told():
    ours = facts(FLAGOS_MEMORY_LIMIT="64M")
    assert ours["total"] == 64 << 20 and ours["free"] <= ours["total"]
