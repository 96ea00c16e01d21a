"""Whatever viewers, the file system or fork do: the process goes on, and says what it cannot serve."""
import base64
import json
import os
import resource
import signal
import socket
import stat
import struct

import pytest
import websockets
from websockets.sync.client import connect

from conftest import WAIT

HANDSHAKE = ("GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             "Sec-WebSocket-Key: " + base64.b64encode(b"0123456789abcdef").decode() + "\r\nSec-WebSocket-Version: 13\r\n"
             "Sec-WebSocket-Protocol: {protocol}\r\n\r\n")


def raw(puppet, text=None):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(WAIT)
    s.connect(puppet.path(".sock"))
    try:
        s.sendall((text or "").encode())
    except BrokenPipeError:
        pass  # refused before we spoke; the answer is there to read
    return s


def status_line(s):
    data = b""
    while b"\r\n" not in data:
        more = s.recv(4096)
        assert more, f"closed after {data!r}"
        data += more
    return data.split(b"\r\n")[0].decode()


def upgraded(puppet):
    """A raw socket after the handshake, to misbehave with."""
    s = raw(puppet, HANDSHAKE.format(path="/telemetry", protocol="flagos.v1"))
    data = b""
    while b"\r\n\r\n" not in data:
        data += s.recv(1)
    assert data.startswith(b"HTTP/1.1 101")
    return s


def frame(payload, opcode=1, fin=True, mask=b"abcd"):
    head = bytes([(0x80 if fin else 0) | opcode])
    n = len(payload)
    if n < 126:
        head += bytes([0x80 | n])
    elif n < 65536:
        head += bytes([0x80 | 126]) + struct.pack(">H", n)
    else:
        head += bytes([0x80 | 127]) + struct.pack(">Q", n)
    return head + mask + bytes(b ^ mask[i & 3] for i, b in enumerate(payload))


def alive(puppet):
    assert puppet.do("timing").endswith(("on", "off"))
    viewer = puppet.view()
    assert viewer.ask("snapshot")["result"]["pid"] == puppet.pid
    viewer.close()


def settled(puppet, expected):
    """Closing is the server thread's work: ask until it is done."""
    for _ in range(2000):
        if puppet.do("fds") == expected:
            return True
        puppet.view().close()
    return False


@pytest.mark.parametrize("path, protocol, status", [
    ("/telemetry", "flagos.v1", 101), ("/telemetry", "flagos.v0, flagos.v1", 101), ("/", "flagos.v1", 404),
    ("/telemetry/", "flagos.v1", 404), ("/telemetry", "chat", 400), ("/telemetry", "flagos-internal", 400)])
def test_path_and_subprotocol(puppet, path, protocol, status):
    s = raw(puppet, HANDSHAKE.format(path=path, protocol=protocol))
    assert status_line(s).split()[1] == str(status)
    alive(puppet)


def test_plain_http_is_told_what_this_is(puppet):
    s = raw(puppet, "GET /telemetry HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status_line(s).split()[1] == "426"
    alive(puppet)


def test_thirty_two_viewers_and_the_next_gets_503(puppet):
    viewers = [puppet.view() for _ in range(32)]
    for _ in range(3):
        with pytest.raises(websockets.InvalidStatus) as refused:
            puppet.view()
        assert refused.value.response.status_code == 503
    for viewer in viewers:
        viewer.subscribe(rate_hz=60)
    puppet.do("alloc 0 0 64")
    for viewer in viewers:
        assert viewer.until("delta", "sites")["sites"][0]["live_bytes"]["value"] == 64
    viewers.pop().close()
    for attempt in range(1000):  # the place is free as soon as the server has seen the close
        try:
            viewers.append(puppet.view())
            break
        except websockets.InvalidStatus:
            continue
    assert len(viewers) == 32


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_message_over_one_mib_is_closed_with_1009(puppet, pieces):
    viewer = puppet.view()
    part = "x" * ((1 << 20) // pieces + 1)
    try:
        viewer.socket.send(part if pieces == 1 else iter([part] * pieces))
        while True:
            viewer.receive()
    except websockets.ConnectionClosed as closed:
        assert closed.rcvd.code == 1009 and closed.rcvd.reason
    alive(puppet)


def test_a_message_of_exactly_one_mib_is_read(puppet):
    viewer = puppet.view()
    request = '{"jsonrpc":"2.0","id":1,"method":"unsubscribe"}'
    viewer.send(request + " " * ((1 << 20) - len(request)))
    assert viewer.receive() == {"jsonrpc": "2.0", "id": 1, "result": True}


def test_binary_is_refused(puppet):
    viewer = puppet.view()
    viewer.socket.send(b"\x00\x01")
    with pytest.raises(websockets.ConnectionClosed) as closed:
        viewer.receive()
    assert closed.value.rcvd.code == 1003
    alive(puppet)


def test_a_reader_that_stops_is_told_what_it_lost(puppet):
    """Far more deltas than the socket and the queue hold; then everything is read and must be consistent."""
    sites = [int(puppet.do(f"site /x/{'long' * 40}/train.py {n} f")) for n in range(1, 400)]
    for site in sites:
        puppet.do(f"alloc 0 {site} 64")
    slow = upgraded(puppet)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(frame(b'{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"rate_hz":60}}'))
    quick = puppet.view()
    quick.subscribe(rate_hz=60)
    # The quick viewer's deltas are the clock: the slow one is due as often.
    for n in range(120):
        for site in sites[::2]:
            puppet.do(f"alloc 0 {site} 1")
        quick.until("delta")
    total = 399 * 64 + 120 * 200
    seen, data = [], b""
    current = None
    while True:
        while True:
            got = parse(data)
            if got is None:
                break
            message, data = got
            seen.append(message["type"] if "type" in message else "reply")
            if seen[-1] == "snapshot":
                current = message["totals"]["live_bytes"]
                last = message["seq"]
            elif seen[-1] == "delta":
                assert message["seq"] == last + 1
                last, current = message["seq"], message["totals"]["live_bytes"]
            elif seen[-1] == "lost":
                assert message["deltas"] >= 1 and message["since_seq"] == last
        if current == total:
            break
        data += slow.recv(65536)
    assert "lost" in seen and seen[seen.index("lost") + 1] == "snapshot"
    alive(puppet)


def parse(data):
    """One unmasked, unfragmented-or-fragmented text message off the front, or None."""
    text, at = b"", 0
    while True:
        if len(data) < at + 2:
            return None
        n, head = data[at + 1] & 0x7F, at + 2
        if n == 126:
            n, head = int.from_bytes(data[at + 2:at + 4], "big"), at + 4
        elif n == 127:
            n, head = int.from_bytes(data[at + 2:at + 10], "big"), at + 10
        if len(data) < head + n:
            return None
        fin = data[at] & 0x80
        text += data[head:head + n]
        at = head + n
        if fin:
            return json.loads(text), data[at:]


def test_unread_replies_over_the_cap_are_closed_with_1013(puppet):
    hungry = upgraded(puppet)
    ask = frame(b'{"jsonrpc":"2.0","id":1,"method":"big","params":{"bytes":1000000}}')
    for _ in range(24):
        hungry.sendall(ask)
    quick = puppet.view()
    assert quick.ask("snapshot")["result"]["pid"] == puppet.pid  # the one beside it is served
    data = b""
    while True:
        more = hungry.recv(1 << 20)
        data += more
        if not more or b"\x03\xf5" in data[-200:]:
            break
    at = data.rindex(b"\x03\xf5")
    assert data[at - 2] == 0x88 and b"8 MiB" in data[at:]
    alive(puppet)


def test_viewers_killed_in_the_middle(puppet):
    puppet.do("alloc 0 0 64")
    stays = puppet.view()  # the server is up from here on
    fds = puppet.do("fds")
    attacks = [
        b"",                                                   # connects and goes
        HANDSHAKE.format(path="/telemetry", protocol="flagos.v1").encode()[:50],
        b"\x00" * 100, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 2000,
    ]
    for attack in attacks:
        s = raw(puppet)
        try:
            s.sendall(attack)
        except OSError:
            pass
        s.close()
    for tail in [frame(b"{}")[:3], frame(b"x" * 500)[:100], frame(b"x" * 70000)[:9], frame(b'{"a', fin=False),
                 frame(b"", 8)[:1], frame(b"\xff\xfe"), b"\x81\x05hello", b"\xf1\x80abcd", frame(b"x" * 126, 9), frame(b"y", 0)]:
        s = upgraded(puppet)
        try:
            s.sendall(tail)
        except OSError:
            pass
        s.close()
    # Reset with megabytes in flight, while subscribed.
    for _ in range(5):
        s = upgraded(puppet)
        s.sendall(frame(b'{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"rate_hz":60}}'))
        for _ in range(4):
            s.sendall(frame(b'{"jsonrpc":"2.0","id":1,"method":"big","params":{"bytes":1000000}}'))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    alive(puppet)
    assert settled(puppet, fds), "descriptors leak"
    assert stays.ask("snapshot")["result"]["pid"] == puppet.pid
    assert puppet.do("timing") == "0 off"  # nobody is left who wants timings
    assert puppet.close() == 0


def test_invalid_utf8_is_refused(puppet):
    s = upgraded(puppet)
    s.sendall(frame(b'{"a":"\xff"}'))
    data = b""
    while b"\x88" not in data:
        more = s.recv(65536)
        assert more
        data += more
    alive(puppet)


def test_sigpipe_stays_what_the_program_made_it(puppet):
    puppet.view().close()
    assert puppet.do("sigpipe") == "default"


def test_no_descriptors_left(puppet):
    alive(puppet)
    resource.prlimit(puppet.pid, resource.RLIMIT_NOFILE, (256, 4096))
    for attempt in range(100):  # an earlier viewer's descriptor may still be on its way back
        assert puppet.do("fill") == "1"
        s = raw(puppet, HANDSHAKE.format(path="/telemetry", protocol="flagos.v1"))
        status = status_line(s).split()[1]
        s.close()
        if status == "503":
            break
        assert status == "101"
    assert status == "503"  # refused, not left waiting
    puppet.do("drain")
    alive(puppet)


def test_kill_leaves_the_last_snapshot(puppet):
    site = int(puppet.do("site /x/train.py 12 Net.forward"))
    puppet.do(f"alloc 0 {site} 4096")
    viewer = puppet.view()
    viewer.subscribe(rate_hz=60)
    # The file follows within half a second; the live stream is the clock, no sleep.
    count = 0
    while True:
        count += 1
        puppet.do(f"alloc 0 {site} 1")
        viewer.until("delta")
        kept = json.load(open(puppet.path(".last")))
        if kept["sites"]:
            break
    puppet.kill()
    assert stat.S_IMODE(os.stat(puppet.path(".last")).st_mode) == 0o600
    kept = json.load(open(puppet.path(".last")))
    assert kept["type"] == "snapshot" and kept["pid"] == puppet.pid and kept["script"] == "/x/train.py"
    assert 4096 <= kept["sites"][0]["live_bytes"]["value"] <= 4096 + count
    with pytest.raises(websockets.ConnectionClosed):
        while True:
            viewer.receive()


def test_a_forked_child_has_no_server(puppet):
    puppet.do("alloc 0 0 64")
    viewer = puppet.view()
    viewer.subscribe(rate_hz=60)
    child, says = puppet.do("fork").split()
    try:
        assert says == "silent"
        assert sorted(os.listdir(puppet.dir)) == sorted(f"{puppet.pid}{s}" for s in (".json", ".sock", ".last"))
        alive(puppet)
        puppet.do("alloc 0 0 1")
        assert viewer.until("delta", "sites")["sites"][0]["live_bytes"]["value"] == 65  # not the child's 4096
        puppet.kill()
        with pytest.raises(websockets.ConnectionClosed):  # although the child lives on
            while True:
                viewer.receive()
        with pytest.raises(OSError):
            raw(puppet)
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_child_that_ends_leaves_the_parents_files(puppet):
    assert puppet.do("exitchild") == "0"
    alive(puppet)
    assert os.path.exists(puppet.path(".json"))


def test_switched_off(make_puppet):
    puppet = make_puppet(FLAGOS_TELEMETRY="0")
    assert os.listdir(puppet.dir) == []
    assert puppet.close() == 0 and puppet.stderr == ""


@pytest.mark.parametrize("trouble", ["long", "file", "link", "missing parent is made"])
def test_a_bad_runtime_directory_is_one_warning(make_puppet, runtime_dir, trouble):
    directory = os.path.join(runtime_dir, "x" * 100) if trouble == "long" else os.path.join(runtime_dir, "rt")
    if trouble == "file":
        open(directory, "w").close()
    if trouble == "link":
        os.symlink("/tmp", directory)
    if trouble == "missing parent is made":
        directory = os.path.join(runtime_dir, "a", "b")
    puppet = make_puppet(directory=directory)
    puppet.do("alloc 0 0 64")
    assert puppet.do("start again") == "ok"
    if trouble == "missing parent is made":
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        alive(puppet)
        return
    assert puppet.close() == 0
    assert puppet.stderr.count("\n") == 1 and directory in puppet.stderr and "Training goes on" in puppet.stderr
    if os.path.isdir(directory) and trouble != "link":
        assert os.listdir(directory) == []


def tcp(puppet, host="localhost:{port}", origin=None, token=True, address="127.0.0.1"):
    found = json.load(open(puppet.path(".json")))["tcp"]
    secret = open(found["token_file"]).read().strip()
    authorization = f"Bearer {secret}" if token is True else token
    s = socket.create_connection((address, found["port"]), WAIT)
    head = HANDSHAKE.format(path="/telemetry", protocol="flagos.v1").replace("Host: localhost", "Host: " + host.format(port=found["port"]))
    extra = (f"Origin: {origin}\r\n" if origin is not None else "") + (f"Authorization: {authorization.format(secret=secret)}\r\n" if authorization else "")
    s.sendall(head.replace("\r\n\r\n", "\r\n" + extra + "\r\n").encode())
    return status_line(s).split()[1]


@pytest.mark.parametrize("status, options", [
    ("101", {}), ("101", {"host": "127.0.0.1:{port}"}), ("101", {"host": "[::1]:{port}"}),
    ("101", {"origin": "vscode-webview://abc"}), ("101", {"origin": "https://ok.example"}),
    ("403", {"host": "localhost"}), ("403", {"host": "localhost:1"}), ("403", {"host": "localhost:{port}0"}),
    ("403", {"host": "localhost:{port}.evil.example"}), ("403", {"host": "evil.example:{port}"}), ("403", {"host": "127.0.0.2:{port}"}),
    ("403", {"origin": "https://evil.example"}), ("403", {"origin": "null"}), ("403", {"origin": "https://ok.example.evil"}),
    ("403", {"token": None}), ("403", {"token": "Bearer "}), ("403", {"token": "Bearer wrong"}), ("403", {"token": "Basic {secret}"}),
    ("403", {"token": "Bearer {secret}0"}), ("403", {"token": "{secret}"}),
])
def test_tcp_checks(make_puppet, status, options):
    puppet = make_puppet(FLAGOS_TELEMETRY_TCP="0", FLAGOS_TELEMETRY_ORIGINS="vscode-webview://abc, https://ok.example")
    assert tcp(puppet, **options) == status


def test_tcp_serves_on_loopback_only_with_a_private_token(make_puppet):
    puppet = make_puppet(FLAGOS_TELEMETRY_TCP="0")
    found = json.load(open(puppet.path(".json")))["tcp"]
    assert stat.S_IMODE(os.stat(found["token_file"]).st_mode) == 0o600
    listening = [line.split() for line in open("/proc/net/tcp") if line.split()[1].endswith(f":{found['port']:04X}") and line.split()[3] == "0A"]
    assert [row[1] for row in listening] == [f"0100007F:{found['port']:04X}"]
    token = open(found["token_file"]).read().strip()
    with connect(f"ws://127.0.0.1:{found['port']}/telemetry", subprotocols=["flagos.v1"], compression=None,
                 additional_headers={"Authorization": f"Bearer {token}"}, open_timeout=WAIT) as viewer:
        assert json.loads(viewer.recv(WAIT))["pid"] == puppet.pid
    puppet.do("stop")
    assert os.listdir(puppet.dir) == []


@pytest.mark.parametrize("port", ["http", "-1", "70000"])
def test_a_bad_tcp_port_is_a_warning_and_the_unix_socket_serves(make_puppet, port):
    puppet = make_puppet(FLAGOS_TELEMETRY_TCP=port)
    alive(puppet)
    assert puppet.close() == 0
    assert port in puppet.stderr and puppet.stderr.count("\n") == 1


def test_no_tcp_unless_asked(puppet):
    assert json.load(open(puppet.path(".json")))["tcp"] is None
    inodes = {os.readlink(f"/proc/{puppet.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{puppet.pid}/fd")}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(table):
            assert not [line for line in open(table).readlines()[1:] if f"socket:[{line.split()[9]}]" in inodes]
