"""The protocol as CONTRACTS fixes it, message by message, with a client that is not ours."""
import json
import os
import re
import stat

import pytest

METRIC = {"value", "unit", "source", "age_s", "why_missing"}


def play(puppet):
    """One line with memory and calls; returns its site id."""
    site = int(puppet.do("site /x/train.py 12 Net.forward"))
    puppet.do("file /x/train.py 0123456789abcdef")
    puppet.do("route 1 aten::mm opencl.gemm.wide built-in")
    puppet.do(f"alloc 0 {site} 4096")
    puppet.do(f"call {site} 1")
    return site


def test_discovery_file(puppet):
    info = os.stat(puppet.path(".json"))
    assert stat.S_IMODE(info.st_mode) == 0o600
    assert stat.S_IMODE(os.stat(puppet.dir).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(puppet.path(".sock")).st_mode) == 0o600
    found = json.load(open(puppet.path(".json")))
    started = int(open(f"/proc/{puppet.pid}/stat").read().rsplit(")", 1)[1].split()[19])
    assert found == {"version": 1, "pid": puppet.pid, "start_time": started, "script": "/x/train.py",
                     "argv": ["python", "/x/train.py"], "socket": puppet.path(".sock"), "tcp": None}


def test_nothing_before_first_use_and_nothing_after_the_end(make_puppet):
    puppet = make_puppet(start=False)
    puppet.do("alloc 0 0 64")
    assert os.listdir(puppet.dir) == []
    puppet.do("start /x/train.py")
    assert os.path.exists(puppet.path(".json"))
    assert puppet.close() == 0  # an ordinary end, without a word to the server
    assert os.listdir(puppet.dir) == []


def test_stop_is_idempotent(puppet):
    assert puppet.do("stop") == "ok"
    assert puppet.do("stop") == "ok"
    assert os.listdir(puppet.dir) == []
    assert puppet.do("fds") == "3"
    assert puppet.close() == 0


def test_hello_comes_first(puppet):
    hello = puppet.view().hello
    assert hello["type"] == "hello" and hello["version"] == 1 and hello["pid"] == puppet.pid
    assert hello["clock"] == "monotonic_ns" and isinstance(hello["now"], int)
    assert hello["rates_hz"] == [0.2, 60]
    assert {"subscribe", "unsubscribe", "snapshot", "explain", "route.set"} <= set(hello["features"])


def test_snapshot_then_deltas_with_one_counter(puppet):
    site = play(puppet)
    viewer = puppet.view()
    result, snapshot = viewer.subscribe(rate_hz=60, parts=["sites", "routes", "fallbacks", "events"], top=200)
    assert result == {"rate_hz": 60.0, "parts": ["sites", "routes", "fallbacks", "events"], "top": 200}
    assert snapshot["seq"] == 1 and snapshot["pid"] == puppet.pid and snapshot["state"] == "live"
    assert snapshot["files"] == [{"path": "/x/train.py", "hash": "0123456789abcdef", "mtime": 0}]
    (row,) = snapshot["sites"]
    assert (row["id"], row["file"], row["line"], row["qualname"]) == (site, "/x/train.py", 12, "Net.forward")
    assert row["live_bytes"] == {"value": 4096, "unit": "B", "source": "measured", "age_s": 0, "why_missing": None}
    assert row["device_time"]["value"] is None and row["device_time"]["why_missing"]
    assert row["calls"] == 1
    (route,) = snapshot["routes"]
    assert (route["op"], route["kernel"], route["calls"], route["reason"]) == ("aten::mm", "opencl.gemm.wide", 1, "built-in")
    assert route["predicted"]["value"] == 2e-5 and route["bound"] == "compute" and set(route["predicted"]) == METRIC

    puppet.do(f"free 0 {site} 4000")
    delta = viewer.until("delta")
    assert delta["seq"] == 2 and delta["t_ns"] > snapshot["t_ns"]
    assert delta["sites"] == [{"id": site, "device": "npu:0", "live_bytes": {"value": 96}}]
    assert "routes" not in delta  # unchanged
    puppet.do("event checkpoint 7")
    event = viewer.until("event")
    assert (event["kind"], event["n"], event["seq"]) == ("checkpoint", 7, 3)
    puppet.do(f"call {site} 1")
    delta = viewer.until("delta")
    assert delta["seq"] == 4 and delta["routes"] == [{"site": site, "route": 1, "calls": 2, "timed_calls": 1}]


def test_new_fallback_is_an_event_and_a_row(puppet):
    site = play(puppet)
    viewer = puppet.view()
    viewer.subscribe(rate_hz=60)
    puppet.do(f"fallback {site} aten::sort 128")
    seen = {}
    while set(seen) != {"delta", "event"}:
        message = viewer.receive()
        if message["type"] == "event" or "fallbacks" in message:
            seen[message["type"]] = message
    assert seen["delta"]["fallbacks"] == [{"op": "aten::sort", "calls": 1, "bytes": 128, "site": site}]
    assert (seen["event"]["kind"], seen["event"]["op"], seen["event"]["site"]) == ("fallback", "aten::sort", site)


def test_parts_are_left_out(puppet):
    play(puppet)
    _, snapshot = puppet.view().subscribe(parts=["routes"])
    assert len(snapshot["routes"]) == 1 and snapshot["sites"] == [] and snapshot["devices"] == []


def test_top_keeps_the_biggest(puppet):
    ids = []
    for line in range(1, 6):
        ids.append(int(puppet.do(f"site /x/train.py {line} f")))
        puppet.do(f"alloc 0 {ids[-1]} {line * 100}")
        puppet.do(f"call {ids[-1]} 1")
    viewer = puppet.view()
    _, snapshot = viewer.subscribe(rate_hz=60, top=2)
    assert [s["id"] for s in snapshot["sites"]] == [ids[4], ids[3]]
    assert {r["site"] for r in snapshot["routes"]} == {ids[4], ids[3]}
    assert snapshot["totals"] == {"sites": 5, "live_bytes": 1500}
    puppet.do(f"alloc 0 {ids[0]} 10000")
    delta = viewer.until("delta", "sites")
    assert [s["id"] for s in delta["sites"]] == [ids[0]] and delta["sites"][0]["line"] == 1  # new to this viewer: in full
    assert delta["removed"]["sites"] == [{"id": ids[3], "device": "npu:0"}]
    assert viewer.ask("snapshot")["result"]["totals"]["live_bytes"] == 11500


@pytest.mark.parametrize("asked, given", [(0.001, 0.2), (0.2, 0.2), (10, 10), (1000, 60)])
def test_rate_is_clamped(puppet, asked, given):
    result, _ = puppet.view().subscribe(rate_hz=asked)
    assert result["rate_hz"] == given


@pytest.mark.parametrize("message, code", [
    ("{", -32700), ("", -32700), ("[" * 100, -32700), ("nonsense", -32700), ("{\"a\":1}x", -32700),
    ("[]", -32600), ("1", -32600), ("{}", -32600), ('{"jsonrpc":"2.0","id":1}', -32600),
    ('{"jsonrpc":"1.0","id":1,"method":"snapshot"}', -32600), ('{"jsonrpc":"2.0","id":1,"method":5}', -32600),
    ('{"jsonrpc":"2.0","id":{},"method":"snapshot"}', -32600),
    ('{"jsonrpc":"2.0","id":1,"method":"no.such"}', -32601),
    ('{"jsonrpc":"2.0","id":1,"method":"subscribe","params":[1]}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"rate_hz":"fast"}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"parts":["everything"]}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"top":-1}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"snapshot","params":{"timings":"yes"}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"explain","params":{}}', -32000),
    ('{"jsonrpc":"2.0","id":1,"method":"big","params":{"bytes":"many"}}', -32602),
])
def test_bad_requests_get_an_error_and_the_connection_lives(puppet, message, code):
    viewer = puppet.view()
    viewer.send(message)
    reply = viewer.receive()
    assert reply["jsonrpc"] == "2.0" and reply["error"]["code"] == code and reply["error"]["message"]
    assert viewer.ask("snapshot")["result"]["pid"] == puppet.pid


def test_reply_carries_the_id_as_sent_and_notifications_none(puppet):
    viewer = puppet.view()
    for id in ("text", 7, 1.5, None):
        viewer.send({"jsonrpc": "2.0", "id": id, "method": "unsubscribe"})
        assert viewer.receive() == {"jsonrpc": "2.0", "id": id, "result": True}
    viewer.send({"jsonrpc": "2.0", "method": "unsubscribe"})
    viewer.send({"jsonrpc": "2.0", "method": "no.such"})
    assert viewer.ask("snapshot")["id"] == 1  # the next message is this reply


def test_runtime_methods(puppet):
    viewer, other = puppet.view(), puppet.view()
    other.subscribe(rate_hz=0.2)
    assert viewer.ask("explain", {"at": "a.py:3"})["result"] == {"at": "a.py:3", "chosen": "opencl.gemm.wide"}
    assert viewer.ask("explain", {})["error"]["message"] == '"at" is missing. Name FILE:LINE'
    assert viewer.ask("route.set", {"op": "aten::mm", "use": "host.aten"})["result"] is True
    event = other.until("event")  # every viewer sees the change, before its next delta
    assert (event["kind"], event["method"], event["params"]["use"]) == ("route", "route.set", "host.aten")


def test_unsubscribe_stops_the_stream(puppet):
    site = play(puppet)
    viewer = puppet.view()
    viewer.subscribe(rate_hz=60)
    assert viewer.ask("unsubscribe")["result"] is True
    puppet.do(f"alloc 0 {site} 1")
    puppet.do("event late 1")
    assert viewer.ask("snapshot")["result"]["sites"][0]["live_bytes"]["value"] == 4097  # nothing came in between


def test_timings_run_while_somebody_wants_them(puppet):
    site = play(puppet)
    assert puppet.do("timing") == "0 off"
    first, second = puppet.view(), puppet.view()
    first.subscribe(rate_hz=60)
    second.subscribe(rate_hz=60)
    assert puppet.do("timing") == "1 on"
    puppet.do(f"call {site} 1")
    while first.until("delta", "routes")["routes"][0].get("timed_calls") != 1:
        pass
    puppet.do(f"time {site} 1 1000 201000")
    puppet.do(f"time {site} 1 201000 251000")
    while first.until("delta", "sites")["sites"][0].get("device_time", {}).get("value") != 0.00025:
        pass
    first.close()
    (row,) = second.ask("snapshot")["result"]["sites"]
    assert row["device_time"] == {"value": 0.00025, "unit": "s", "source": "measured", "age_s": 0, "why_missing": None}
    assert (row["calls"], row["timed_calls"]) == (2, 1)  # two kernels are one call
    assert puppet.do("timing") == "1 on"
    assert second.ask("unsubscribe")["result"] is True
    assert puppet.do("timing") == "0 off"
    third = puppet.view()
    third.ask("snapshot", {"timings": True})
    assert puppet.do("timing") == "1 on"
    third.ask("snapshot", {"timings": False})
    assert puppet.do("timing") == "0 off"


def test_schema_holds_every_message(puppet):
    """The checked-in JSON Schema names exactly the fields that are sent."""
    schema = json.load(open(os.path.join(os.path.dirname(__file__), "../../../runtime/telemetry/schema/flagos-telemetry.schema.json")))
    site = play(puppet)
    puppet.do(f"fallback {site} aten::sort 128")
    puppet.do(f"copy {site} 64")
    viewer = puppet.view()
    _, snapshot = viewer.subscribe(rate_hz=60)
    puppet.do(f"call {site} 1")
    for message in (viewer.hello, snapshot, viewer.until("delta"), viewer.until("event") if puppet.do("event e 1") else None):
        problems = check(message, schema, schema)
        assert not problems, (message["type"], problems)
    assert check({**snapshot, "pid": "x"}, schema, schema)
    assert check({**snapshot, "sites": [{"id": 1}]}, schema, schema)
    assert check({"type": "mystery"}, schema, schema)


def check(value, schema, root, at="$"):
    """The few words of JSON Schema that our schema uses; returns what is wrong."""
    if "$ref" in schema:
        node = root
        for part in schema["$ref"].lstrip("#/").split("/"):
            node = node[part]
        return check(value, node, root, at)
    if "oneOf" in schema:
        found = [check(value, s, root, at) for s in schema["oneOf"]]
        return [] if sum(not f for f in found) == 1 else min(found, key=len) or [f"{at}: more than one form fits"]
    out = []
    if "const" in schema and value != schema["const"]:
        return [f"{at}: {value!r} is not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is none of {schema['enum']}"]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(isinstance(value, kinds[t]) and (t == "boolean" or not isinstance(value, bool)) for t in types):
        return [f"{at}: {value!r} is no {types}"]
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        out.append(f"{at}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, dict):
        out += [f"{at}.{k} is missing" for k in schema.get("required", []) if k not in value]
        for key, inner in value.items():
            if key in schema.get("properties", {}):
                out += check(inner, schema["properties"][key], root, f"{at}.{key}")
            elif schema.get("additionalProperties", True) is False:
                out.append(f"{at}.{key} is not in the schema")
    if isinstance(value, list) and "items" in schema:
        for i, inner in enumerate(value):
            out += check(inner, schema["items"], root, f"{at}[{i}]")
    return out
