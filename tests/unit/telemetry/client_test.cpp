// Viewers' side against the real transport on a real socket, and the files by which processes are found.
#include "runtime/telemetry/client.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runtime/base/paths.h"
#include "runtime/telemetry/announce.h"
#include "runtime/telemetry/model.h"
#include "runtime/telemetry/recorder.h"
#include "runtime/telemetry/server/transport.h"
#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::telemetry;

namespace {

// A runtime directory of its own for each test.
struct Folder {
  std::string path;
  std::string before;
  Folder() {
    char name[] = "/tmp/fl-unit-XXXXXX";
    path = ::mkdtemp(name);
    if (const char* v = std::getenv("FLAGOS_RUNTIME_DIR")) before = v;
    ::setenv("FLAGOS_RUNTIME_DIR", path.c_str(), 1);
  }
  ~Folder() {
    if (before.empty()) ::unsetenv("FLAGOS_RUNTIME_DIR");
    else ::setenv("FLAGOS_RUNTIME_DIR", before.c_str(), 1);
    (void)!std::system(("rm -rf '" + path + "'").c_str());
  }
  bool has(const std::string& file) const { return ::access((path + "/" + file).c_str(), F_OK) == 0; }
  void write(const std::string& file, const std::string& text) const { REQUIRE(writeFileAtomic(path + "/" + file, text)); }
};

struct Server {
  Hub hub;
  std::unique_ptr<Transport> transport;
  std::thread thread;
  ProcessEntry entry;
  explicit Server(const Folder& f, ServerHooks hooks = {}) : hub(std::move(hooks), Identity{::getpid(), 1, "/x/train.py", {}}) {
    entry.pid = ::getpid();
    entry.socket = f.path + "/t.sock";
    entry.state = "live";
    TransportOptions o;
    auto fd = listenUnix(entry.socket);
    REQUIRE(fd);
    o.unix_fd = *fd;
    o.wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    transport = Transport::create(hub, std::move(o));
    thread = std::thread([this] { (void)transport->run(); });
  }
  ~Server() {
    if (transport) transport->stop();
    if (thread.joinable()) thread.join();
  }
};

// Messages as they come; wait() blocks until one satisfies the condition.
struct Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Json> all;
  void put(const Json& j) {
    std::lock_guard lock(mutex);
    all.push_back(j);
    changed.notify_all();
  }
  template <class F>
  bool wait(F&& f) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), [&] { return f(all); });
  }
};

std::string announcement(int pid, uint64_t start, const std::string& socket) {
  return "{\"version\":1,\"pid\":" + std::to_string(pid) + ",\"start_time\":" + std::to_string(start) +
         ",\"script\":\"/x/a.py\",\"argv\":[\"a\"],\"socket\":\"" + socket + "\",\"tcp\":null}";
}

constexpr int kNobody = 4194304 + 7;   // above the largest pid there is

}  // namespace

TEST_CASE("a client asks, subscribes and keeps up") {
  Folder folder;
  resetForTest();
  ServerHooks hooks;
  hooks.methods["double"] = [](const Json& p) -> Result<Json> { return Json(p.value("n", 0) * 2); };
  hooks.methods["fail"] = [](const Json&) -> Result<Json> { return fail("no such line", "Name FILE:LINE"); };
  hooks.methods["throw"] = [](const Json& p) -> Result<Json> { return Json(p.at("missing")); };
  Server server(folder, std::move(hooks));
  auto connected = Client::connect(server.entry);
  REQUIRE(connected);
  auto& client = **connected;
  CHECK(client.connected());
  auto twice = client.request("double", {{"n", 21}});
  REQUIRE(twice);
  CHECK(*twice == 42);
  auto failed = client.request("fail", nullptr);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().what.find("no such line") != std::string::npos);
  CHECK_FALSE(client.request("throw", Json::object()));
  auto unknown = client.request("no.such", nullptr);
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().what.find("-32601") != std::string::npos);

  // Four threads at once each get their own answer.
  std::thread threads[4];
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads[t] = std::thread([&, t] {
      for (int i = 0; i < 50; ++i)
        if (auto r = client.request("double", {{"n", t * 100 + i}}); r && *r == 2 * (t * 100 + i)) ++right;
    });
  for (auto& t : threads) t.join();
  CHECK(right == 200);

  Inbox inbox;
  Json state;
  REQUIRE(client.subscribe({{"rate_hz", 60}}, [&](const Json& j) { inbox.put(j); }));
  REQUIRE(inbox.wait([](const auto& all) { return !all.empty(); }));
  countAlloc(0, 0, 640);
  REQUIRE(inbox.wait([&](const auto& all) {
    state = all[0];
    for (size_t i = 1; i < all.size(); ++i)
      if (!applyDelta(state, all[i])) return false;
    const auto& sites = state["sites"];
    return sites.size() == 1 && sites[0]["live_bytes"]["value"] == 640;
  }));
  CHECK(state["type"] == "snapshot");
  CHECK(processFromJson(state).sites[0].live_bytes.value == 640.0);
}

TEST_CASE("a client says why the process is gone") {
  Folder folder;
  auto server = std::make_unique<Server>(folder);
  auto client = Client::connect(server->entry);
  REQUIRE(client);
  const ProcessEntry entry = server->entry;
  REQUIRE((*client)->request("unsubscribe", nullptr));
  server.reset();
  auto gone = (*client)->request("snapshot", nullptr);
  REQUIRE_FALSE(gone);
  CHECK(gone.error().exit == Exit::no_device);
  CHECK(gone.error().what.find("process " + std::to_string(entry.pid)) != std::string::npos);
  auto again = Client::connect(entry, 500);
  REQUIRE_FALSE(again);
  CHECK(again.error().where == "process " + std::to_string(entry.pid));
  ProcessEntry ended = entry;
  ended.state = "ended";
  CHECK(Client::connect(ended).error().what.find("has ended") != std::string::npos);
}

TEST_CASE("live, stale, foreign and broken announcements") {
  Folder folder;
  const int me = ::getpid();
  const uint64_t start = *processStartTime(me);
  const std::string mine = std::to_string(me), dead = std::to_string(kNobody);
  folder.write(mine + ".json", announcement(me, start, folder.path + "/" + mine + ".sock"));
  folder.write(dead + ".json", announcement(kNobody, 5, folder.path + "/" + dead + ".sock"));
  folder.write(dead + ".sock", "");
  folder.write("4194320.json", "{broken");
  folder.write("notes.json", "{}");                      // not ours: left alone
  auto found = listProcesses();
  REQUIRE(found);
  REQUIRE(found->size() == 1);
  CHECK((*found)[0].pid == me);
  CHECK((*found)[0].state == "live");
  CHECK((*found)[0].script == "/x/a.py");
  CHECK_FALSE(folder.has(dead + ".json"));
  CHECK_FALSE(folder.has(dead + ".sock"));
  CHECK_FALSE(folder.has("4194320.json"));
  CHECK(folder.has("notes.json"));
  CHECK(folder.has(mine + ".json"));

  // The same number, but a later process: the file is of one that is gone.
  folder.write(mine + ".json", announcement(me, start - 1, folder.path + "/none.sock"));
  found = listProcesses();
  REQUIRE(found);
  CHECK(found->empty());
  CHECK_FALSE(folder.has(mine + ".json"));
}

TEST_CASE("a process of another pid namespace is alive while its socket answers") {
  Folder folder;
  auto fd = listenUnix(folder.path + "/far.sock");
  REQUIRE(fd);
  folder.write(std::to_string(kNobody) + ".json", announcement(kNobody, 5, folder.path + "/far.sock"));
  auto found = listProcesses();
  REQUIRE(found);
  REQUIRE(found->size() == 1);
  CHECK((*found)[0].state == "live");
  ::close(*fd);
  found = listProcesses();
  REQUIRE(found);
  CHECK(found->empty());
}

TEST_CASE("a crashed process is listed as ended with its last snapshot") {
  Folder folder;
  ProcessRow row;
  row.pid = kNobody, row.start_time = 5, row.script = "/x/crashed.py", row.state = "live", row.argv = {"python"};
  row.written_at = 1000;
  SiteRow s;
  s.id = 1, s.file = "/x/crashed.py", s.line = 3, s.live_bytes = Metric::of(77, "B", "measured");
  row.sites = {s};
  for (const bool recent : {true, false}) {
    row.written_at = recent ? 4e9 : 1000;                // in the future counts as just now; long ago is forgotten
    folder.write(std::to_string(kNobody) + ".last", dump(toJson(row)));
    auto found = listProcesses();
    REQUIRE(found);
    CHECK(found->size() == (recent ? 1u : 0u));
    CHECK(folder.has(std::to_string(kNobody) + ".last") == recent);
    if (!recent) continue;
    const ProcessEntry& e = (*found)[0];
    CHECK(e.state == "ended");
    CHECK(e.script == "/x/crashed.py");
    const ProcessRow p = processFromJson(e.last_snapshot);
    CHECK(p.state == "ended");
    CHECK(p.age_s == 0);
    CHECK(p.sites[0].live_bytes.value == 77.0);
  }
  for (int i = 0; i < 40; ++i) {                         // a crash loop does not fill the folder
    row.pid = kNobody + i, row.start_time = static_cast<uint64_t>(100 + i), row.written_at = 4e9;
    folder.write(std::to_string(kNobody + i) + ".last", dump(toJson(row)));
  }
  auto found = listProcesses();
  REQUIRE(found);
  CHECK(found->size() == 16);
  CHECK((*found)[0].start_time == 139);                  // newest first
  CHECK_FALSE(folder.has(std::to_string(kNobody) + ".last"));
}

TEST_CASE("a directory that cannot be read is an error, an absent one is nobody") {
  Folder folder;
  const std::string base = folder.path;
  ::setenv("FLAGOS_RUNTIME_DIR", (base + "/none").c_str(), 1);
  REQUIRE(listProcesses());
  CHECK(listProcesses()->empty());
  ::setenv("FLAGOS_RUNTIME_DIR", (base + "/no/such/parent").c_str(), 1);
  REQUIRE_FALSE(listProcesses());
  folder.write("file", "");
  ::setenv("FLAGOS_RUNTIME_DIR", (base + "/file").c_str(), 1);
  auto r = listProcesses();
  REQUIRE_FALSE(r);
  CHECK(r.error().exit == Exit::no_device);
  CHECK(r.error().where == base + "/file");
  CHECK(r.error().text().find("FLAGOS_RUNTIME_DIR") != std::string::npos);
  ::setenv("FLAGOS_RUNTIME_DIR", "/proc/1/cwd/x", 1);    // another user's, unless we are root
  if (::getuid() != 0) CHECK_FALSE(listProcesses());
}

TEST_CASE("what a TCP caller must show") {
  const TcpPolicy p{8123, "secret", {"https://ok"}};
  struct Case { const char* host; const char* origin; const char* authorization; bool allowed; };
  const Case cases[] = {
      {"localhost:8123", nullptr, "Bearer secret", true},   {"127.0.0.1:8123", "https://ok", "Bearer secret", true},
      {"[::1]:8123", nullptr, "Bearer secret", true},       {"", nullptr, "Bearer secret", false},
      {"localhost", nullptr, "Bearer secret", false},       {"localhost:81234", nullptr, "Bearer secret", false},
      {"LOCALHOST:8123", nullptr, "Bearer secret", false},  {"localhost:8123", "", "Bearer secret", false},
      {"localhost:8123", "https://ok/", "Bearer secret", false}, {"localhost:8123", nullptr, "Bearer secre", false},
      {"localhost:8123", nullptr, "Bearer secretsecret", false}, {"localhost:8123", nullptr, "bearer secret", false},
      {"localhost:8123", nullptr, "", false},
  };
  for (const Case& c : cases) {
    INFO(c.host << " / " << (c.origin ? c.origin : "-") << " / " << c.authorization);
    CHECK(refuseTcp(p, c.host, c.origin, c.origin ? c.origin : "", c.authorization).empty() == c.allowed);
  }
  CHECK_FALSE(refuseTcp({8123, "", {}}, "localhost:8123", false, "", "Bearer ").empty());   // no token, no entry
  CHECK(makeToken().size() == 64);
  CHECK(makeToken() != makeToken());
  CHECK(splitList(" a, b ,,c") == std::vector<std::string>{"a", "b", "c"});
  CHECK(splitList("").empty());
}
