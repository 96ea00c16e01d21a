"""`flagos fingerprints`, and a simulated fleet. The simulation knows the source table (tests/fixtures/devices.tsv) and the
command contract, and shares no code and no constant with the matcher."""
import csv
import json
import os
import random
import re
import subprocess

from conftest import BUILD, ROOT

TABLE = list(csv.DictReader(open(os.path.join(ROOT, "tests/fixtures/devices.tsv"), encoding="utf-8"), delimiter="\t", quoting=csv.QUOTE_NONE))


def sizes(row):
    """Sizes a product is sold with, in GiB."""
    several = re.match(r"vram=(\d+) or (\d+)$", row["discriminator"])
    if several:
        return [float(several[1]), float(several[2])]
    return [float(row["memory_gib"])] if row["memory_gib"] else []


def could_be(row, board):
    """The contract: memory within 10 %, a measured bandwidth of 50 to 100 % of nominal; what is missing excludes nothing."""
    if (row["vendor_id"], row["device_id"]) != (board["vendor"], board["device"]):
        return False
    if board["memory_bytes"] and sizes(row) and not any(abs(board["memory_bytes"] / 2**30 / s - 1) <= 0.1 for s in sizes(row)):
        return False
    if board["bandwidth_gbps"] and row["bandwidth_gbps"] and not 0.5 <= board["bandwidth_gbps"] / float(row["bandwidth_gbps"]) <= 1:
        return False
    return True


def fleet(count, seed):
    """(true row or None, board): every row in turn, with noise, missing facts, firmware and misleading names."""
    rng = random.Random(seed)
    rows = [r for r in TABLE if r["device_id"] != "unknown"]
    for i in range(count):
        row = rows[i % len(rows)]
        board = {"vendor": row["vendor_id"], "device": row["device_id"], "subsystem": f"{rng.randrange(65536):04x}:{rng.randrange(65536):04x}",
                 "revision": f"{rng.randrange(256):02x}", "memory_bytes": None, "bandwidth_gbps": None,
                 "firmware": rng.choice(["v1.2.3", "v1.3.0", None]), "driver": rng.choice(["6.8.0", "6.10.1", None]), "reported_name": None}
        if sizes(row):
            board["memory_bytes"] = int(rng.choice(sizes(row)) * 2**30 * rng.uniform(0.92, 1.0))
        if row["bandwidth_gbps"]:
            board["bandwidth_gbps"] = round(float(row["bandwidth_gbps"]) * rng.uniform(0.55, 0.98), 2)
        for fact in ("subsystem", "revision", "memory_bytes", "bandwidth_gbps"):
            if rng.random() < 0.25:
                board[fact] = None
        if rng.random() < 0.3:
            board["reported_name"] = rng.choice([row["marketing_name"], rng.choice(rows)["marketing_name"], "AMD Radeon Graphics"])
        truth = row
        if rng.random() < 0.02:      # a product that the table does not know
            board["device"] = "fffe"
            truth = None
        yield truth, board


def match(flagos, boards):
    rc, out, err = flagos("fingerprints", "match", "--json", stdin="".join(json.dumps(b) + "\n" for b in boards))
    assert rc == 0 and err == ""
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) == len(boards)
    return answers


def test_simulated_fleet(flagos):
    right = confident_wrong = 0
    seen = set()
    pairs = list(fleet(120_000, seed=20260822))
    for (truth, board), answer in zip(pairs, match(flagos, [b for _, b in pairs])):
        fitting = {r["marketing_name"] for r in TABLE if r["device_id"] == board["device"] and could_be(r, board)}
        expected = "exact" if len(fitting) == 1 else "family" if fitting else "unknown"
        named = {c["model"] for c in answer["candidates"] if c["score"] > 0}
        good = answer["result"] == expected and named == fitting and (answer["model"] is None or answer["model"] in fitting)
        right += good
        if answer["result"] == "exact" and (truth is None or answer["model"] != truth["marketing_name"]):
            confident_wrong += 1
        if truth:
            seen.add((truth["vendor_id"], truth["device_id"], truth["marketing_name"]))
            # the true product is never excluded by its own noise
            assert truth["marketing_name"] in named, (truth["marketing_name"], board, answer)
    assert confident_wrong == 0
    assert right / len(pairs) >= 0.9997, right
    assert len(seen) == sum(r["device_id"] != "unknown" for r in TABLE)


def test_identity_and_build(flagos):
    one = {"vendor": "1002", "device": "744c", "subsystem": "1da2:e471", "revision": "c8", "memory_bytes": 25753026560, "bandwidth_gbps": 812.0,
           "firmware": "v1.2.3", "driver": "6.8.0", "reported_name": "AMD Radeon RX 7900 XTX"}
    two = dict(one, firmware="v1.3.0")
    three = dict(one, driver="6.10.1", reported_name=None, bandwidth_gbps=None)
    a, b, c = match(flagos, [one, two, three])
    assert a["result"] == "exact" and a["model"] == "Radeon RX 7900 XTX"
    assert a["identity"] == b["identity"] == c["identity"] and len({a["build"], b["build"], c["build"]}) == 3
    other_slot = dict(one, subsystem="1da2:e472")
    assert match(flagos, [other_slot])[0]["identity"] != a["identity"]


def test_table_is_whole():
    """Every row of the source table is in the fingerprint files with its figures, sources and confidence."""
    entries = {}
    folder = os.path.join(ROOT, "fingerprints")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json") and name != "schema.json":
            doc = json.load(open(os.path.join(folder, name), encoding="utf-8"))
            for d in doc["devices"]:
                entries[(doc["vendor"]["id"], d["id"] or "unknown", d["model"])] = d
    assert len(entries) == len(TABLE) == 226
    for row in TABLE:
        e = entries[(row["vendor_id"], row["device_id"], row["marketing_name"])]
        memory = e.get("memory", {})
        assert memory.get("gib", []) == sizes(row)
        assert memory.get("bandwidth_gbps") == (float(row["bandwidth_gbps"]) if row["bandwidth_gbps"] else None)
        assert memory.get("confidence", row["conf_mem_bw"] or None) == (row["conf_mem_bw"] or memory.get("confidence"))
        assert e.get("pcie", {}).get("link") == (row["pcie_gen_x_width"] or None)
        assert e.get("compute", {}).get("dense_fp16_tflops") == (float(row["dense_fp16_tflops"]) if row["dense_fp16_tflops"] else None)
        assert e["sources"].get("id") == row["id_source"] and e["sources"].get("figures", "") == row["figure_source"]
        assert e.get("note", "") == row["note"]


def test_broken_lines_keep_their_place(flagos):
    rc, out, err = flagos("fingerprints", "match", "--json", stdin='{"vendor":"1002","device":"740f"}\nnot json\n{"vendor": 5}\n\n[]\n{"vendor":"10de","device":"27b8"}\n')
    answers = [json.loads(line) for line in out.splitlines()]
    assert rc == 4 and [a["model"] for a in answers] == ["Instinct MI210", None, None, None, "L4"]
    assert "stdin:2:" in err and "stdin:3: \"vendor\" must be" in err and "stdin:5: " in err
    rc, out, err = flagos("fingerprints", "match", "--json", stdin="[" * 100000 + "\n")
    assert rc == 4 and json.loads(out)["result"] == "unknown"
    assert flagos("fingerprints", "match", "--json", stdin="") == (0, "", "")


def test_check_reports_file_and_line(flagos, tmp_path):
    assert flagos("fingerprints", "check")[0] == 0
    source = open(os.path.join(ROOT, "fingerprints/nvidia.json"), encoding="utf-8").read()
    line = 1 + source[:source.index('"bandwidth_gbps": 300,')].count("\n") if '"bandwidth_gbps": 300,' in source else None
    assert line, "the L4 is in the table at 300 GB/s"
    bad = tmp_path / "bad.json"
    bad.write_text(source.replace('"bandwidth_gbps": 300,', '"bandwidth_gbps": 3350,', 1), encoding="utf-8")
    rc, out, _ = flagos("fingerprints", "check", str(bad))
    assert rc == 1 and f"{bad}:{line}: bandwidth 3350" in out, out
    bad.write_text(source[:-20])
    rc, out, _ = flagos("fingerprints", "check", str(bad))
    assert rc == 1 and re.search(re.escape(str(bad)) + r":\d+: ", out)
    rc, _, err = flagos("fingerprints", "check", str(tmp_path / "none.json"))
    assert rc == 4 and "none.json" in err


def test_own_table_replaces_the_built_in(flagos, tmp_path):
    (tmp_path / "mine.json").write_text(json.dumps({"version": 1, "vendor": {"id": "abcd", "name": "Mine"}, "devices": [
        {"id": "0001", "model": "Mine One", "kind": "npu", "sources": {"id": "me", "date": "2026-01-01"}}]}))
    rc, out, _ = flagos("fingerprints", "match", "--json", stdin='{"vendor":"abcd","device":"0001"}\n', FLAGOS_FINGERPRINTS=str(tmp_path))
    assert rc == 0 and json.loads(out)["model"] == "Mine One"


def test_new_drafts_entries_that_pass_the_validator(flagos, tmp_path):
    root = os.path.join(ROOT, "tests/fixtures/machines/qat-coprocessor")
    rc, out, _ = flagos("fingerprints", "new", "--root", root)
    draft = json.loads(out)
    assert rc == 0 and draft["vendor"] == {"id": "8086", "name": "Intel"} and draft["devices"][0]["id"] == "4940"
    assert "0000:6b:00.0" in draft["devices"][0]["sources"]["id"]
    path = tmp_path / "draft.json"
    path.write_text(out)
    assert flagos("fingerprints", "check", str(path))[0] == 0
    assert flagos("fingerprints", "new", "--root", os.path.join(ROOT, "tests/fixtures/machines/cpu-only"))[0] == 3
    # What is matched exactly is drafted on request: three sizes of one id, each with what tells it apart.
    trio = os.path.join(ROOT, "tests/fixtures/machines/amd-744c-trio")
    rc, _, err = flagos("fingerprints", "new", "--root", trio)
    assert rc == 3 and "matched exactly" in err and "--all" in err
    rc, out, err = flagos("fingerprints", "new", "--all", "--root", trio)
    draft = json.loads(out)["devices"]
    assert rc == 0 and {tuple(d["memory"]["gib"]) for d in draft} == {(24,), (20,), (16,)} and "3 entries of vendor 1002" in err
    assert {d["told_by"] for d in draft} == {"vram=24", "vram=20", "vram=16"}
    path.write_text(out)
    assert flagos("fingerprints", "check", str(path))[0] == 0
    # One vendor a file; the others are named.
    several = os.path.join(ROOT, "tests/fixtures/machines/hygon-metax-cambricon")
    _, out, err = flagos("fingerprints", "new", "--all", "--root", several)
    vendors = {json.loads(out)["vendor"]["id"]} | set(re.findall(r"--vendor ([0-9a-f]{4})", err))
    assert len(vendors) == 3
    for v in vendors:
        rc, out, _ = flagos("fingerprints", "new", "--all", "--vendor", v, "--root", several)
        assert rc == 0 and json.loads(out)["vendor"]["id"] == v
    rc, _, err = flagos("fingerprints", "new", "--root", "/no/such/folder")
    assert rc == 2 and "is not a folder" in err


def test_a_closed_reader_is_no_crash():
    boards = '{"vendor":"1002","device":"744c"}\n' * 20000
    program = subprocess.Popen([os.path.join(BUILD, "bin", "flagos"), "fingerprints", "match", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    program.stdout.close()
    try:
        program.stdin.write(boards)
        program.stdin.close()
    except BrokenPipeError:
        pass
    assert program.wait(timeout=60) >= 0, "ended by a signal"


def test_a_stdin_that_cannot_be_read_is_no_empty_answer(tmp_path):
    program = os.path.join(BUILD, "bin", "flagos")
    folder = os.open(tmp_path, os.O_RDONLY)
    done = subprocess.run([program, "fingerprints", "match", "--json"], stdin=folder, capture_output=True, text=True, timeout=60)
    os.close(folder)
    assert done.returncode == 4 and done.stdout == "" and "stdin cannot be read" in done.stderr
