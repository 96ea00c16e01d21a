"""`flagos explain` without a process: the contract's document, rules, devices of the table, wrong calls."""
import json
import os
import threading

import pytest

WIDE = {"name": "wide-mm", "op": "aten::mm", "when": {"m": "> 1024"}, "use": "opencl.gemm.tiled"}


def mm(rows, *more):
    return ("explain", "aten::mm", "--shapes", f"[{rows},512] [512,256]", *more)


def test_the_contract_s_own_example(flagos):
    doc = flagos.json("explain", "aten::linear", "--shapes", "[1024,512] [2048,512] [2048]", "--dtype", "float16", "--device", "npu:0")
    assert doc["version"] == 1
    assert doc["query"] == {"op": "aten::linear", "shapes": "[1024,512] [2048,512] [2048]", "dtype": "float16", "device": "npu:0", "rules": None}
    assert doc["device"] == "npu:0"
    assert doc["signature"]["args"][1] == {"dtype": "float16", "shape": [2048, 512], "layout": "contiguous"}
    assert doc["chosen"] == "opencl.gemm.wide"
    assert doc["runs_as"] == ["aten::addmm.out", "aten::mm.out"]
    assert doc["counts"] == {"calls": None, "by_route": {}, "why_missing": "no process was asked"}
    for step in doc["steps"]:
        assert {"kind", "name", "from", "predicate", "operands", "verdict", "why", "predicted_s", "measured_s"} <= step.keys()
        assert step["verdict"] in ("match", "no", "rejected", "chosen")
    assert [s["verdict"] for s in doc["steps"]].count("chosen") == 1


def test_a_rule_on_m_flips_at_1025(flagos, rules):
    path = rules(WIDE)
    below, above = (flagos.json(*mm(rows, "--rules", path)) for rows in (1024, 1025))
    assert (below["chosen"], above["chosen"]) == ("opencl.gemm.wide", "opencl.gemm.tiled")
    rule = [s for s in above["steps"] if s["name"] == "wide-mm"][0]
    assert (rule["kind"], rule["predicate"], rule["operands"], rule["verdict"]) == ("rule", "m > 1024", {"m": 1025}, "match")
    assert rule["from"].startswith(path + ":")
    assert {"if": "m = 1025 (now 1024)", "then": f"opencl.gemm.tiled (rule wide-mm ({rule['from']}))"} in below["would_change"]


def test_user_rules_come_from_the_environment_and_from_the_home_folder(flagos, rules, tmp_path):
    path = rules(WIDE)
    assert flagos.json(*mm(1025), FLAGOS_RULES=path)["chosen"] == "opencl.gemm.tiled"
    home = tmp_path / "config" / "flagos"
    home.mkdir(parents=True)
    os.rename(path, home / "rules.json")
    assert flagos.json(*mm(1025))["chosen"] == "opencl.gemm.tiled"
    # The device's vendor comes after the user.
    (home / "rules.json").unlink()
    vendor = home / "rules" / "vendor"
    vendor.mkdir(parents=True)
    (vendor / "genuineintel.json").write_text(json.dumps({"version": 1, "rules": [WIDE]}))
    assert flagos.json(*mm(1024))["chosen"] == "opencl.gemm.wide"


def test_a_card_of_the_table_needs_no_device(flagos):
    doc = flagos.json(*mm(1024, "--device", "fingerprint:GeForce RTX 4090"))
    assert doc["device"] == "fingerprint:GeForce RTX 4090"
    for short in ("fingerprint:rtx 4090 d", "RTX 4090 D"):   # a part of one name alone
        assert flagos.json(*mm(1024, "--device", short))["device"] == "fingerprint:GeForce RTX 4090 D"
    assert doc["device_description"]["kind"] == "discrete"
    assert doc["chosen"] == "opencl.gemm.tiled"
    chosen = [s for s in doc["steps"] if s["verdict"] == "chosen"][0]
    # Half of the vector units' peak is what a tiled product reaches; the launch is assumed.
    assert chosen["predicted_s"] == pytest.approx(chosen["cost"]["flops"] / (82.58e12 * 0.5) + 10e-6)
    assert doc["device_description"]["rates_source"] == "table"
    assert "assumed: 10 us a kernel launch" in doc["device_description"]["rates"]
    assert "rates from the device table: 1008 GB/s (confidence A)" in flagos.run(*mm(1024, "--device", "fingerprint:GeForce RTX 4090")).stdout


def test_clblast_is_a_candidate_with_its_reason(flagos, rules):
    def step(doc, name):
        return next(s for s in doc["steps"] if s["name"] == name)
    # On this processor it can run (./dev setup installs libclblast1) and only a rule makes it.
    here = dict(FLAGOS_ROOT="/")
    doc = flagos.json(*mm(1024, "--device", "npu:0"), **here)
    assert (doc["chosen"], step(doc, "opencl.gemm.clblast")["verdict"]) == ("opencl.gemm.wide", "match")
    assert step(doc, "opencl.gemm.clblast")["why"] == "legal; made for GPUs: only a rule or `flagos route set` chooses it"
    assert step(doc, "clblast-on-gpu")["verdict"] == "no"
    forced = flagos.json(*mm(1024, "--rules", rules({"name": "lib", "op": "aten::mm", "use": "opencl.gemm.clblast"})), **here)
    assert forced["chosen"] == "opencl.gemm.clblast"
    half = flagos.json(*mm(1024, "--device", "npu:0", "--dtype", "float16", "--why-not", "opencl.gemm.clblast"), **here)
    assert half["why_not"]["why"] == "CLBlast sums float16 in float16, and this backend's products sum it in float32"
    # A card that is elsewhere: nobody knows what is installed there.
    card = flagos.json(*mm(1024, "--device", "fingerprint:GeForce RTX 4090"))
    assert step(card, "clblast-on-gpu")["verdict"] == "rejected"
    assert step(card, "opencl.gemm.clblast")["why"] == "whether libclblast.so.1 is installed on the device's machine is not known"
    assert any(c["if"] == "libclblast1 is installed" and c["then"].startswith("opencl.gemm.clblast (rule clblast-on-gpu") for c in card["would_change"])


def test_a_rate_that_the_table_does_not_know_is_not_invented(flagos):
    doc = flagos.json(*mm(1024, "--device", "fingerprint:Radeon RX 7900 GRE / 7900M"))
    chosen = [s for s in doc["steps"] if s["verdict"] == "chosen"][0]
    assert chosen["predicted_s"] is None
    assert chosen["cost"]["why_missing"] == "the device's arithmetic rate is not known"


def test_stored_rates_make_predictions(flagos, tmp_path):
    device = flagos.json("devices")["devices"][0]["fingerprint"]
    identity = device["identity"] + device["build"]
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "rates.json").write_text(json.dumps({"version": 1, "devices": {identity: {
        "bandwidth_bps": 20e9, "flops_f32": 200e9, "copy_bps": 10e9, "launch_s": 2e-6, "wait_s": 40e-6}}}))
    doc = flagos.json("explain", "aten::mm", "--shapes", "[2048,2048] [2048,2048]")
    assert doc["bound"] == "compute"
    assert doc["predicted_s"] == pytest.approx(2 * 2048**3 / (200e9 * 0.8) + 2e-6)
    assert doc["device_description"]["rates_source"] == "measured"


def test_why_not(flagos, rules):
    doc = flagos.json(*mm(64, "--why-not", "opencl.conv.wide"))
    assert doc["why_not"] == {"name": "opencl.conv.wide", "verdict": "rejected", "why": "it runs conv operators; aten::mm is in family gemm"}
    text = flagos.run(*mm(1025, "--why-not", "opencl.gemm.wide", "--rules", rules(WIDE))).stdout
    assert "why not opencl.gemm.wide: rule wide-mm (" in text


def test_fields(flagos):
    names = [f["name"] for f in flagos.json("explain", "--fields", "aten::mm")["fields"]]
    assert names == ["op", "dtype", "rank", "numel", "bytes", "contiguous", "m", "n", "k", "batch", "bias",
                     "device.kind", "device.vendor", "device.name", "device.firmware", "device.memory"]
    conv = flagos.json("explain", "--fields", "aten::convolution_overrideable")["fields"]
    assert [f["name"] for f in conv if f["family"] == "conv"][:9] == ["n", "c", "h", "w", "k", "r", "s", "stride", "padding"]
    assert "family softmax:" in flagos.run("explain", "--fields").stdout


@pytest.mark.parametrize("args, code, says", [
    (("explain",), 2, "no operator was named"),
    (("explain", "aten::lineer"), 2, "Did you mean aten::linear?"),
    (("explain", "mm"), 2, "Did you mean aten::mm?"),
    (("explain", "aten::mm", "--why-not", "opencl.gem.wide"), 2, "Did you mean opencl.gemm.wide?"),
    (("explain", "aten::mm", "--shapez", "[1]"), 2, "--shapes"),
    (("explain", "aten::mm", "--shapes", "1024"), 2, "is no shape"),
    (("explain", "aten::mm", "--dtype", "flaot32", "--shapes", "[1]"), 2, "Did you mean float32?"),
    (("explain", "aten::mm", "--device", "gpu:0"), 2, "--device npu:0"),
    (("explain", "aten::mm", "--device", "npu:x"), 2, "--device npu:0"),
    (("explain", "aten::mm", "--device", "npu:7"), 3, "npu:7 does not exist: this machine has 1 device"),
    (("explain", "aten::mm", "--device", "fingerprint:GeForce RTX 4091"), 2, "Did you mean"),
    (("explain", "--at", "train.py"), 2, "Write --at FILE:LINE"),
    (("explain", "--at", "train.py:0"), 2, "Write --at FILE:LINE"),
    (("explain", "--at", "train.py:3"), 3, "no running process"),
    (("explain", "--at", "train.py:3", "--pid", "1"), 3, "process 1 uses no FlagOS device"),
    (("explain", "aten::mm", "--rules", "/nowhere/r.json"), 4, "/nowhere/r.json"),
    (("route",), 2, "subcommand"),
    (("route", "list"), 3, "no running process"),
    (("route", "set"), 2, "needs a rule file"),
    (("route", "set", "--op", "aten::mm", "--use", "opencl.gemm.wid"), 2, "Did you mean opencl.gemm.wide?"),
    (("route", "set", "--op", "mm", "--use", "host.aten"), 2, "Write aten::mm"),
    (("route", "set", "/nowhere/r.json"), 4, "/nowhere/r.json"),
])
def test_wrong_calls(flagos, args, code, says):
    done = flagos.run(*args)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stdout == ""


def test_without_a_device_the_answer_is_3(flagos):
    done = flagos.run("explain", "aten::mm", FLAGOS_ROOT=os.path.join(os.path.dirname(__file__), "../../fixtures/machines/no-driver"))
    assert done.returncode == 3
    assert "fingerprint:<model>" in done.stderr


def test_a_broken_rule_file_is_exit_4_with_its_place(flagos, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text('{"version":1,"rules":[\n {"op":"aten::mm","when":{"batchh":1},"use":"host.aten"}]}')
    for args in (mm(64, "--rules", str(path)), ("route", "set", str(path))):
        done = flagos.run(*args)
        assert done.returncode == 4
        assert f"{path}:2:27: unknown field 'batchh'; did you mean batch?" in done.stderr
    # As the user's own file it is reported, left out, and the built-in rules stay in force.
    done = flagos.run(*mm(64), FLAGOS_RULES=str(path))
    assert done.returncode == 0
    assert "unknown field 'batchh'" in done.stderr
    assert "tiny-gemm-on-cpu" in done.stdout


def test_rules_may_come_from_a_pipe(flagos, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = json.dumps({"version": 1, "rules": [WIDE]})
    writer = threading.Thread(target=lambda: pipe.write_text(text))
    writer.start()
    assert flagos.json(*mm(1025, "--rules", str(pipe)))["chosen"] == "opencl.gemm.tiled"
    writer.join()


def test_a_broken_file_is_one_sentence_with_place_and_reason(flagos, tmp_path):
    path = tmp_path / "rules.json"
    for text, where, why in ((b"\xa2\xff\x1b[31m", ":1:1: ", "invalid literal"), (b"", ":1:1: ", "unexpected end"), (b"[" * 200000, ":1:1: ", "nested deeper"),
                             (b'{"version":1,"rules":[{"name":5}]}', ":1:31: ", "'name' must be a text (and 1 more)")):
        path.write_bytes(text)
        for call in (mm(8, "--rules", str(path)), ("route", "set", str(path))):
            done = flagos.run(*call)
            assert done.returncode == 4 and done.stdout == "" and done.stderr.count("\n") == 1, done
            assert f"{path}{where}" in done.stderr and why in done.stderr and done.stderr.isascii(), done.stderr
