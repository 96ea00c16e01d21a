#include <pwd.h>
// base: errors, JSON at the edge, metrics, names, settings, paths.
#include <nlohmann/json.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/base/json.h"
#include "runtime/base/metric.h"
#include "runtime/base/names.h"
#include "runtime/base/paths.h"
#include "runtime/base/settings.h"
#include "tests/unit/catch.h"

using namespace flagos;

TEST_CASE("an error reads as one sentence with place and advice") {
  Error e = fail("unknown predicate 'mm'", "use one of m, n, k");
  e.where = "rules.json:4:12";
  CHECK(e.text() == "rules.json:4:12: unknown predicate 'mm'. use one of m, n, k");
}

TEST_CASE("broken JSON is reported with line and column") {
  auto r = parseJson("{\n  \"a\": ]\n}", "x.json");
  REQUIRE_FALSE(r);
  CHECK(r.error().where == "x.json:2:8");
  CHECK(r.error().exit == Exit::broken_input);
}

TEST_CASE("JSON depth and size are capped before a tree is built") {
  CHECK_FALSE(parseJson(std::string(100, '['), "deep", {1024, 64}));
  CHECK_FALSE(parseJson("[1,2,3]", "big", {3, 64}));
  CHECK(parseJson("[[1]]", "ok", {1024, 2}).ok());
  CHECK_FALSE(parseJson("", "empty").ok());
  CHECK(parseJson("{\"a\": 1e999}", "x.json").error().what == "number overflow parsing '1e999'");
}

TEST_CASE("a missing metric is null with its reason, never 0") {
  const auto j = toJson(Metric::missing("B", "the driver does not report it"));
  CHECK(j["value"].is_null());
  CHECK(j["why_missing"] == "the driver does not report it");
  const auto k = toJson(Metric::of(4096, "B", "opencl"));
  CHECK(k["value"] == 4096);
  CHECK(k["value"].is_number_integer());
  CHECK(k["why_missing"].is_null());
  const Metric back = metricFromJson(k);
  CHECK(back.value == 4096.0);
  CHECK(back.source == "opencl");
}

TEST_CASE("numbers are shown with three significant digits") {
  CHECK(formatBytes(512) == "512 B");
  CHECK(formatBytes(1536) == "1.50 KiB");
  CHECK(formatBytes(12.25 * 1024 * 1024 * 1024) == "12.2 GiB");
  CHECK(formatSeconds(1.25e-3) == "1.25 ms");
  CHECK(formatSeconds(40e-9) == "40 ns");
}

TEST_CASE("the same text has one id, from every thread") {
  const NameId a = internName("aten::mm");
  NameId b = 0;
  std::thread([&] { b = internName("aten::mm"); }).join();
  CHECK(a == b);
  CHECK(nameText(a) == "aten::mm");
  CHECK(nameText(4000000000u).empty());
  CHECK(internName("") == 0);
}

TEST_CASE("dtypes carry PyTorch's names and sizes") {
  CHECK(dtypeFromName("torch.float") == DType::float32);
  CHECK(dtypeFromName("bool") == DType::bool_);
  CHECK_FALSE(dtypeFromName("quaternion").has_value());
  CHECK(dtypeBytes(DType::complex128) == 16);
}

TEST_CASE("an unknown or wrong setting is named, with the nearest one") {
  ::setenv("FLAGOS_FALBACK", "warn", 1);
  ::setenv("FLAGOS_ROUTE", "opencI", 1);
  const auto w = settingWarnings();
  ::unsetenv("FLAGOS_FALBACK");
  ::unsetenv("FLAGOS_ROUTE");
  REQUIRE(w.size() == 2);
  const std::string all = w[0] + "\n" + w[1];
  CHECK(all.find("did you mean FLAGOS_FALLBACK?") != std::string::npos);
  CHECK(all.find("FLAGOS_ROUTE=opencI is not one of auto|opencl|host") != std::string::npos);
}

TEST_CASE("a setting that is near none names none") {
  ::setenv("FLAGOS_BOGUS", "1", 1);
  ::setenv("FLAGOS_ROUT", "host", 1);
  const auto w = settingWarnings();
  ::unsetenv("FLAGOS_BOGUS");
  ::unsetenv("FLAGOS_ROUT");
  REQUIRE(w.size() == 2);
  CHECK(std::count(w.begin(), w.end(), "FLAGOS_BOGUS is not a FlagOS setting; `flagos doctor` lists them") == 1);
  CHECK(std::count(w.begin(), w.end(), "FLAGOS_ROUT is not a FlagOS setting; did you mean FLAGOS_ROUTE?") == 1);
}

TEST_CASE("one of a thing is no plural") {
  CHECK(counted(1, "block") == "1 block");
  CHECK(counted(0, "block") == "0 blocks");
  CHECK(counted(21, "block") == "21 blocks");
}

TEST_CASE("a binary file's bytes never reach a message") {
  const auto r = parseJson("{\"a\": \x1b[31m\xa2\xff", "x.json");
  REQUIRE_FALSE(r);
  for (const char c : r.error().text()) CHECK((c >= ' ' && c < 0x7f));
}

TEST_CASE("a pipe is read to its end, and one that nobody writes to is an error instead of a hang") {
  char tmpl[] = "/tmp/flagos-base-XXXXXX";
  const std::string dir = ::mkdtemp(tmpl);
  const std::string pipe = dir + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto silent = readFile(pipe);
  REQUIRE_FALSE(silent);
  CHECK(silent.error().text() == pipe + ": nothing was written to it for 5 s");
  CHECK(silent.error().exit == Exit::broken_input);
  const std::string sent(200'000, 'x');   // more than a pipe holds, so that reader and writer wait for each other
  std::thread writer([&] { std::ofstream(pipe) << sent; });
  const auto got = readFile(pipe);
  writer.join();
  REQUIRE(got);
  CHECK(*got == sent);
  CHECK_FALSE(readFile("/dev/zero", 100'000));
  CHECK(*readFile("/dev/null") == "");
}

TEST_CASE("files are replaced whole, and the runtime folder is private") {
  char tmpl[] = "/tmp/flagos-base-XXXXXX";
  const std::string dir = ::mkdtemp(tmpl);
  REQUIRE(writeFileAtomic(dir + "/f", "one"));
  REQUIRE(writeFileAtomic(dir + "/f", "two"));
  CHECK(*readFile(dir + "/f") == "two");
  ::setenv("FLAGOS_RUNTIME_DIR", (dir + "/run").c_str(), 1);
  auto made = makeRuntimeDir();
  ::chmod((dir + "/run").c_str(), 0755);   // somebody's folder is refused, never changed
  const auto open = makeRuntimeDir();
  REQUIRE_FALSE(open.ok());
  CHECK(open.error().text().find("is open to other users") != std::string::npos);
  struct stat st {};
  REQUIRE(::stat((dir + "/run").c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0755);
  CHECK(*openToOthers(dir + "/run"));
  REQUIRE(::symlink("/tmp", (dir + "/link").c_str()) == 0);
  CHECK(openToOthers(dir + "/link").error().what == "is a link, not a folder");
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  ::setenv("HOME", "rel", 1);   // no folder may appear wherever a program happens to start
  CHECK((cacheDir()[0] == '/' && configDir()[0] == '/'));
  ::unsetenv("HOME");
  if (const passwd* me = ::getpwuid(::getuid()); me && me->pw_dir[0] == '/' && !std::getenv("XDG_CACHE_HOME") && !std::getenv("FLAGOS_CACHE_DIR"))
    CHECK(cacheDir() == std::string(me->pw_dir) + "/.cache/flagos");   // nothing that is run lies where others may prepare it
  ::setenv("HOME", home.c_str(), 1);
  ::setenv("FLAGOS_RUNTIME_DIR", "rel", 1);
  REQUIRE_FALSE(makeRuntimeDir().ok());
  CHECK_FALSE(std::filesystem::exists("rel"));
  ::unsetenv("FLAGOS_RUNTIME_DIR");
  REQUIRE(made);
  CHECK(*made == dir + "/run");
  CHECK_FALSE(readFile(dir + "/absent"));
  CHECK(processStartTime(1).has_value());
  CHECK_FALSE(processStartTime(4194304 + 7).has_value());
}

TEST_CASE("the clock can be frozen for tests") {
  setClockForTest(42);
  CHECK(nowNs() == 42);
  setClockForTest(0);
  CHECK(nowNs() > 42);
}
