#include <filesystem>
#include <fstream>

#include "lsp/features/phrases.h"
#include "lsp/live/ran_as.h"
#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::lsp;

namespace {

const std::string kText = "import torch\nx = torch.zeros(3, device='npu:0')\n";

std::shared_ptr<const telemetry::ProcessRow> process(int pid, double bytes, const std::string& path = "/t.py", const char* state = "live") {
  auto p = std::make_shared<telemetry::ProcessRow>();
  p->pid = pid;
  p->state = state;
  p->script = path;
  p->files = {{path, hash16(telemetry::fnv1a(kText)), 0}};
  telemetry::SiteRow r;
  r.id = 1;
  r.file = path;
  r.line = r.end_line = 2;
  r.column = 4;
  r.end_column = 34;
  r.call_hash = hash16(telemetry::callHash("torch.zeros(3, device='npu:0')"));
  r.device = "npu:0";
  r.live_bytes = Metric::of(bytes, "B", "measured");
  r.peak_bytes = Metric::of(2 * bytes, "B", "measured");
  r.calls = 1;
  p->sites = {r};
  return p;
}

Analysis analysed(const std::string& path = "/t.py") {
  Workspace workspace;
  AnalysisOptions options;
  options.machine.known = true;
  options.machine.devices = {"npu:0"};
  return analyse(makeUnit(path, kText), workspace, options);
}

}  // namespace

TEST_CASE("ranks of one job: the maximum and the spread, by name, never a sum") {
  LiveView view;
  view.processes = {process(83, 4096), process(82, 1024), process(81, 2048), process(70, 1u << 20)};   // newest first
  view.ranks = {{81, {0, "run a"}}, {82, {1, "run a"}}, {83, {2, "run a"}}, {70, {0, "run b"}}};
  const Analysis a = analysed();
  const RanAs d{"/t.py", {}, nullptr};
  const auto live = liveOf(view, a, kText, d, 0, nullptr);
  REQUIRE(live);
  CHECK(live->pid == 81);   // the lowest rank stands for the job, so that it does not change with who started last
  REQUIRE(live->sites[0].live_spread);
  CHECK(live->sites[0].live_spread->most == 4096);
  std::string all;
  for (const auto& l : liveLines(live->sites[0])) all += l + "\n";
  CHECK(all.find("live over 3 processes: at most 4 KiB on rank 2 (pid 83), at least 1 KiB on rank 1 (pid 82), spread 3 KiB") != std::string::npos);
  CHECK(all.find("7 KiB") == std::string::npos);
  CHECK(liveOf(view, a, kText, d, 70, nullptr)->pid == 70);
  CHECK_FALSE(liveOf(view, a, kText, d, 70, nullptr)->sites[0].live_spread);
}

TEST_CASE("ended processes are taken only where no live one ran the file") {
  LiveView view;
  view.processes = {process(5, 1, "/t.py", "ended"), process(4, 2), process(3, 3, "/other.py")};
  const Analysis a = analysed();
  CHECK(liveOf(view, a, kText, {"/t.py", {}, nullptr}, 0, nullptr)->pid == 4);
  view.processes.erase(view.processes.begin() + 1);
  const auto last = liveOf(view, a, kText, {"/t.py", {}, nullptr}, 0, nullptr);
  CHECK(last->process_state == "ended");
  CHECK(liveLines(last->sites[0])[0].find("last seen in pid 5, which ended") != std::string::npos);
  CHECK_FALSE(liveOf(view, a, kText, {"/nobody.py", {}, nullptr}, 0, nullptr));
}

TEST_CASE("a file that was renamed since the run keeps its values") {
  LiveView view;
  view.processes = {process(5, 512, "/old.py")};
  const Analysis a = analysed("/new.py");
  CHECK_FALSE(liveOf(view, a, kText, {"/new.py", {}, nullptr}, 0, nullptr));
  const auto live = liveOf(view, a, kText, {"/new.py", {"/old.py"}, nullptr}, 0, nullptr);
  REQUIRE(live);
  CHECK(live->sites[0].state == "exact");
  CHECK(live->sites[0].live_bytes.value == 512);
  CHECK(ranAt(*view.processes[0], {"/new.py", {"/old.py"}, nullptr}, live->sites[0]).path == "/old.py");
}

TEST_CASE("what the system says about a process's rank") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("flagos-ranks-" + std::to_string(::getpid()));
  const auto put = [&](int pid, const std::string& name, const std::string& content) {
    fs::create_directories(root / "proc" / std::to_string(pid));
    std::ofstream(root / "proc" / std::to_string(pid) / name, std::ios::binary) << content;
  };
  using namespace std::string_literals;
  put(1000, "environ", "HOME=/x\0RANK=3\0WORLD_SIZE=4\0MASTER_ADDR=h\0MASTER_PORT=29500\0"s);
  put(1001, "environ", "RANK=0\0WORLD_SIZE=1\0"s);
  put(1002, "environ", ""s);
  put(1002, "cmdline", "python\0-c\0from multiprocessing.spawn import spawn_main\0--multiprocessing-fork\0"s);
  put(1002, "status", "Name:\tpython\nPPid:\t1005\n");
  put(1003, "environ", "HOME=/x\0"s);
  put(1003, "cmdline", "python\0train.py\0"s);
  put(1003, "status", "PPid:\t1006\n");
  put(1006, "cmdline", "bash\0"s);
  const std::string r = root.string();
  CHECK(rankOf(1000, r).rank == 3);
  CHECK(rankOf(1000, r).job == "run h:29500");
  CHECK(rankOf(1001, r).job.empty());
  CHECK(rankOf(1002, r).job == "child of 1005");
  CHECK(rankOf(1002, r).rank == -1);
  CHECK(rankOf(1003, r).job.empty());   // a shell's children are no job
  CHECK(rankOf(1999, r).job.empty());
  CHECK(rankName(1000, {{1000, rankOf(1000, r)}}) == "rank 3 (pid 1000)");
  CHECK(rankName(1003, {}) == "pid 1003");
  fs::remove_all(root);
}
