"""`flagos devices`: the command contract, field by field, and its exit codes."""
import json
import os

import pytest

from conftest import MACHINES

DEVICE_FIELDS = {"index", "device", "name", "vendor", "kind", "usable", "why_unusable", "pci", "parent", "stable_id", "drivers",
                 "torch", "bandwidth", "fingerprint", "memory", "utilisation", "dtypes", "dtypes_stored", "sort_key"}
METRIC_FIELDS = {"value", "unit", "source", "age_s", "why_missing"}
SOURCES = {"opencl", "sysfs", "driver", "measured", "table", "predicted"}
# Exit 3 where nothing is usable.
NOTHING_USABLE = {"no-driver", "fallen-off-the-bus", "ascend-310p", "opencl-device-fails", "broken-files"}


def check_metric(m):
    assert set(m) == METRIC_FIELDS
    if m["value"] is None:
        assert m["why_missing"] and m["source"] is None
    else:
        assert m["why_missing"] is None and m["source"] in SOURCES


@pytest.mark.parametrize("machine", sorted(m for m in os.listdir(MACHINES) if os.path.isdir(os.path.join(MACHINES, m))))
def test_contract_on_recorded_machines(flagos_json, flagos, machine):
    root = os.path.join(MACHINES, machine)
    code = 3 if machine in NOTHING_USABLE else 0
    doc = flagos_json("devices", "--root", root, code=code)
    assert doc["version"] == 1
    for d in doc["devices"]:
        assert DEVICE_FIELDS <= set(d)
        assert d["kind"] in ("discrete", "integrated", "cpu", "npu", "other")
        assert (d["device"] is None) == (d["index"] is None)
        assert d["usable"] == (d["why_unusable"] is None)
        assert set(d["memory"]) == {"dedicated", "shared", "used", "free"}
        t = d["torch"]
        for m in (*d["memory"].values(), d["utilisation"], d["bandwidth"], t["compute_units"], t["clock"], t["max_allocation"]):
            check_metric(m)
        for fact in ("name", "stable_id", "architecture", "capability", "supported_dtypes"):
            missing = t[fact]["value"] in (None, [])
            assert (t[fact]["source"] in SOURCES) != missing and (t[fact]["why_missing"] is None) != missing, fact
        assert d["dtypes_stored"] == ([{"dtype": x, "computed_in": "float32"} for x in ("float16", "bfloat16")] if d["dtypes"] else [])
        assert t["name"]["value"] == d["name"] and t["supported_dtypes"]["value"] == d["dtypes"]
        f = d["fingerprint"]
        assert f["result"] in ("exact", "family", "unknown")
        assert (f["model"] is not None) == (f["result"] == "exact")
        assert {"identity", "build", "candidates"} <= set(f)
        for c in f["candidates"]:
            assert {"model", "score", "for", "against"} == set(c)
        for x in d["drivers"]:
            assert {"platform", "version", "chosen", "why"} == set(x)
    for p in doc["probes"]:
        assert (p["found"] > 0) == (p["why_nothing"] is None)
    # FLAGOS_ROOT is the same as --root, and the text output ends with the same exit code.
    assert flagos_json("devices", code=code, FLAGOS_ROOT=root) == doc
    rc, out, err = flagos("devices", "--why", "--root", root)
    assert rc == code and err == ""
    for d in doc["devices"]:
        assert d["name"] in out and d["stable_id"] in out


def test_this_machine(flagos_json):
    doc = flagos_json("devices")
    first = doc["devices"][0]
    assert first["index"] == 0 and first["device"] == "npu:0" and first["usable"]
    cpu = [d for d in doc["devices"] if d["kind"] == "cpu"]
    assert len(cpu) == 1 and cpu[0]["memory"]["shared"]["value"] > 2**28
    others = [d for d in doc["devices"] if d["usable"] and d["kind"] != "cpu"]
    assert (cpu[0]["index"] == 0) == (not others)


def test_device_name_and_visibility_from_the_environment(flagos_json):
    assert flagos_json("devices", FLAGOS_DEVICE_NAME="ai")["devices"][0]["device"] == "ai:0"
    doc = flagos_json("devices", FLAGOS_VISIBLE_DEVICES="-1", code=3)
    assert all(not d["usable"] for d in doc["devices"])
    assert any("FLAGOS_VISIBLE_DEVICES" in d["why_unusable"] for d in doc["devices"])
    assert len(doc["warnings"]) == 1 and "'-1' names no device" in doc["warnings"][0]


def test_recorded_machine_replays(flagos, flagos_json, tmp_path):
    target = str(tmp_path / "machine")
    assert flagos("doctor", "--record", target)[0] == 0
    live, replay = flagos_json("devices"), flagos_json("devices", "--root", target)

    def stable(doc):
        # What changes from second to second is no part of the machine.
        for d in doc["devices"]:
            d["memory"] = {k: m["source"] for k, m in d["memory"].items()}
            d["utilisation"] = d["utilisation"]["source"]
            d.pop("age_s", None)
        return doc["devices"], [(p["name"], p["found"]) for p in doc["probes"]]
    assert stable(live) == stable(replay)
    text = "".join(open(os.path.join(folder, f), errors="replace").read() for folder, _, files in os.walk(target) for f in files)
    home = os.path.expanduser("~")
    assert home == "/" or home + "/" not in text
    assert os.uname().nodename not in text or len(os.uname().nodename) < 4
    # A second recording into the same folder is refused.
    rc, _, err = flagos("doctor", "--record", target)
    assert rc == 2 and "not empty" in err


def test_wrong_calls_name_the_nearest_option(flagos):
    for args, word in ((["devcies"], "devices"), (["devices", "--jsn"], "--json"), (["fingerprints", "chekc"], "check")):
        rc, out, err = flagos(*args)
        assert rc == 2 and out == "" and f"did you mean {word}?" in err and err.count("\n") == 1, err
    for args in (["devices", "--root"], ["devices", "--root", "/no/such/folder"], ["devices", "extra"], ["fingerprints"], []):
        assert flagos(*args)[0] == 2, args
    rc, out, _ = flagos("--version")
    assert rc == 0 and out.startswith("flagos ")
    assert flagos("--help")[0] == 0
    # A closed reader is no crash.
    assert flagos("devices", "--json")[0] == 0


def test_a_broken_record_is_named_and_the_rest_is_listed(flagos, tmp_path):
    (tmp_path / "opencl.json").write_text('{\n "platforms": [,]\n}')
    rc, out, err = flagos("devices", "--json", "--root", str(tmp_path))
    assert rc == 4 and json.loads(out)["devices"] == []
    assert f"{tmp_path}/opencl.json:2:16: " in err, err


def test_topology(flagos, flagos_json):
    root = os.path.join(MACHINES, "topology-ladder")
    doc = flagos_json("devices", "--topology", "--root", root)
    edges = {(e["a"], e["b"]): e for e in doc["topology"]["edges"]}
    assert edges["npu:0", "npu:1"]["class"] == "PIX" and edges["npu:0", "npu:5"]["class"] == "SYS"
    for e in edges.values():
        check_metric(e["bandwidth"])
        check_metric(e["latency"])
        assert e["paths"][-1]["via"] == "host" and e["paths"][0]["via"] == e["best"]
        assert all(p["why"] for p in e["paths"]) and e["bandwidth"] == e["paths"][0]["bandwidth"]
        assert e["why"] and e["best"] in ("fabric", "peer", "host")
    out = flagos("devices", "--topology", "--root", root)[1]
    assert "PIX" in out and "narrowest at 0000:02:02.0" in out
    assert "topology" not in flagos_json("devices", "--root", root)


def test_no_colour_and_one_document(flagos):
    rc, out, _ = flagos("devices", "--json")
    assert rc == 0 and json.loads(out) and "\x1b" not in out
    assert "\x1b" not in flagos("devices")[1]


@pytest.mark.parametrize("call, words", [
    (["devices", "--root", ""], ["--root", "empty value"]),
    (["doctor", "--record", ""], ["--record", "empty value"]),
    (["route", "lst"], ["no command lst", "did you mean list?"]),
    (["route", "frob"], ["no command frob", "flagos route --help"]),
    (["route", "list", "--pid", "abc"], ["--pid", "flagos route list --help"]),
    (["route", "set", "--op", "aten::matmull", "--use", "host.aten"], ["'aten::matmull'", "Did you mean aten::matmul?"]),
    (["route", "set", "--op", "aten::mm", "--use", "opencl.conv.tiled"], ["family gemm", "Did you mean opencl.gemm.tiled?"]),
    (["top", "--once", "--interval", "nan"], ["--interval", "0.1"]),
    (["explain"], ["no operator was named. Write"]),
    (["explain", "aten::mm", "--at", "x.py:3"], ["--at", "one of them"]),
    (["explain", "aten::mm", "--pid", "3"], ["--pid goes with --at"]),
])
def test_a_wrong_call_is_one_sentence_and_exit_2(flagos, call, words):
    rc, out, err = flagos(*call)
    assert rc == 2 and out == "" and err.count("\n") == 1, (rc, out, err)
    assert all(w in err for w in words), err


def test_how_half_precision_is_computed_is_said(flagos):
    code, out, _ = flagos("devices")
    assert code == 0 and "            float16 bfloat16 are kept in 2 bytes and computed in float32\n" in out and "float64 has no" not in out
    code, out, _ = flagos("devices", "--root", os.path.join(MACHINES, "laptop-asleep"))
    assert "computed in float32, although the device computes float16 itself\n" in out
    assert "float64 has no kernels here: the device computes none\n" in out


def test_a_home_that_cannot_be_written_hides_no_device(flagos_json, tmp_path):
    usual = flagos_json("devices")["devices"]
    found = flagos_json("devices", HOME="/dev/null", XDG_CACHE_HOME="", POCL_CACHE_DIR="", TMPDIR=str(tmp_path))["devices"]
    assert [d["stable_id"] for d in found] == [d["stable_id"] for d in usual] and [d["usable"] for d in found] == [d["usable"] for d in usual]
