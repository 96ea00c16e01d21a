// The program cache on disk: hits, healing, foreign files, errors, threads and processes.
#include "runtime/opencl/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/paths.h"
#include "runtime/opencl/device.h"
#include "runtime/opencl/disk_cache.h"
#include "runtime/opencl/program_cache.h"
#include "tests/unit/catch.h"

extern char** environ;

using namespace flagos;
using namespace flagos::ocl;

namespace {

std::string freshFolder(const char* name) {
  const std::string folder = std::string(FLAGOS_BINARY_DIR) + "/program_test_" + std::to_string(::getpid()) + "_" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

struct Removed {
  std::string folder;
  ~Removed() { std::filesystem::remove_all(folder); }
};

Device& dev() {
  auto d = device(0);
  REQUIRE(d.ok());
  return **d;
}

std::unique_ptr<ProgramCache> cacheIn(const std::string& folder, Keep keep = keepOf(dev().id())) {
  return std::make_unique<ProgramCacheImpl>(dev().context(), dev().id(), 0, folder, keep);
}

constexpr const char* kText = "kernel void twice(global float* a) { a[get_global_id(0)] *= FACTOR; }\n"
                              "kernel void thrice(global float* a) { a[get_global_id(0)] *= 3.0f; }\n";

std::string onlyBinary(const std::string& folder) {
  std::string found;
  for (const auto& e : std::filesystem::directory_iterator(folder))
    if (e.path().extension() == ".bin") found = e.path();
  REQUIRE_FALSE(found.empty());
  return found;
}

// What the kernel computes from 5, so that a kernel that merely loads is not enough.
float runOnce(ProgramCache& cache, const char* function = "twice") {
  const auto k = cache.kernelFromText("t", kText, function, "-DFACTOR=2.0f");
  if (!k) FAIL(k.error().text());
  auto block = dev().pool().allocate(4, 0, 0);
  REQUIRE(block.ok());
  const auto mem = static_cast<cl_mem>(mou::slabHandle(**block));
  // The kernel indexes from the start of its buffer, so give it one of its own.
  const cl_mem own = clCreateBuffer(dev().context(), CL_MEM_READ_WRITE, 64, nullptr, nullptr);
  float x = 5;
  Queue& q = dev().queue();
  Range r;
  r.local[0] = 1;
  REQUIRE(q.write(own, 0, &x, 4, true).ok());
  REQUIRE(q.launch(**k, r, {Arg::buffer(own)}).ok());
  REQUIRE(q.copy(mem, (*block)->offset, own, 0, 4).ok());
  REQUIRE(q.read(&x, mem, (*block)->offset, 4, true).ok());
  clReleaseMemObject(own);
  dev().pool().release(*block);
  return x;
}

}  // namespace

TEST_CASE("the second process finds what the first built", "[opencl]") {
  const Keep keep = GENERATE(Keep::object, Keep::executable);
  const Removed folder{freshFolder("hit")};
  {
    auto first = cacheIn(folder.folder, keep);
    CHECK(runOnce(*first) == 10.0f);
    CHECK(runOnce(*first, "thrice") == 15.0f);
    CHECK(first->builds() == 1);
    CHECK(first->diskHits() == 0);
    onlyBinary(folder.folder);  // there at once: a process that is killed leaves what it built
  }
  auto second = cacheIn(folder.folder, keep);
  CHECK(runOnce(*second) == 10.0f);
  CHECK(runOnce(*second, "thrice") == 15.0f);
  CHECK(second->builds() == 0);
  CHECK(second->diskHits() == 1);
}

TEST_CASE("a damaged or foreign file is replaced", "[opencl]") {
  const Removed folder{freshFolder("heal")};
  { auto c = cacheIn(folder.folder); runOnce(*c); }
  const std::string file = onlyBinary(folder.folder);
  const std::string good = *readFile(file);
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 1);
  std::string foreign = good;
  foreign[9] = static_cast<char>(foreign[9] ^ 1);  // made for another device, source or option
  // A whole file with a good checksum that the driver does not understand.
  const std::string junk = "not a program";
  DiskCache::Key key{};
  std::memcpy(&key.check, good.data() + 8, 8);
  key.name = std::stoull(std::filesystem::path(file).stem().string(), nullptr, 16);
  DiskCache(folder.folder, "any").store(key, junk);
  const std::string refused = *readFile(file);
  for (const std::string& bad : {std::string(), std::string("x"), good.substr(0, good.size() / 2), good + "tail", flipped, foreign, refused}) {
    REQUIRE(writeFileAtomic(file, bad).ok());
    auto healed = cacheIn(folder.folder);
    CHECK(runOnce(*healed) == 10.0f);
    CHECK(healed->builds() == 1);
    CHECK(healed->diskHits() == 0);
    auto after = cacheIn(folder.folder);
    CHECK(runOnce(*after) == 10.0f);
    CHECK(after->builds() == 0);
  }
}

TEST_CASE("options and text are part of the name on disk", "[opencl]") {
  const DiskCache a("/nowhere", "device a"), b("/nowhere", "device b");
  CHECK(a.key("text", "o").name != b.key("text", "o").name);
  CHECK(a.key("text", "o").name != a.key("text2", "o").name);
  CHECK(a.key("text", "o").name != a.key("text", "p").name);
  CHECK(a.key("text", "o").name == a.key("text", "o").name);
  CHECK(a.key("text", "o").check != a.key("text", "p").check);
  CHECK(fnv1a("") == 14695981039346656037ull);
  CHECK(fnv1a("a") == 0xaf63dc4c8601ec8cull);
}

TEST_CASE("a folder that cannot be written costs a build, nothing else", "[opencl]") {
  auto cache = cacheIn("/proc/flagos/none");
  CHECK(runOnce(*cache) == 10.0f);
  CHECK(cache->builds() == 1);
}

TEST_CASE("errors carry the compiler's words and are kept", "[opencl]") {
  const Removed folder{freshFolder("error")};
  auto cache = cacheIn(folder.folder);
  for (int i = 0; i < 2; ++i) {
    const auto k = cache->kernelFromText("broken", "kernel void f(global float* a) { a[0] = nosuchthing; }", "f");
    REQUIRE_FALSE(k.ok());
    CHECK(k.error().what.find("broken.cl") != std::string::npos);
    CHECK(k.error().what.find("nosuchthing") != std::string::npos);
  }
  CHECK(cache->builds() == 1);
  const auto none = cache->kernel("no_such_file", "f");
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().what == "no OpenCL source named 'no_such_file' is compiled in");
  REQUIRE(cache->kernelFromText("t", kText, "twice", "-DFACTOR=1.0f").ok());
  const auto missing = cache->kernelFromText("t", kText, "fourfold", "-DFACTOR=1.0f");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().what.find("fourfold") != std::string::npos);
}

TEST_CASE("many threads get the same kernel from one build", "[opencl]") {
  const Removed folder{freshFolder("threads")};
  auto cache = cacheIn(folder.folder);
  std::vector<const Kernel*> got(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] {
      auto k = cache->kernelFromText("t", kText, "twice", "-DFACTOR=2.0f");
      if (k) got[i] = *k;
    });
  for (auto& t : threads) t.join();
  REQUIRE(got[0] != nullptr);
  for (const Kernel* k : got) CHECK(k == got[0]);
  CHECK(cache->builds() == 1);
}

TEST_CASE("one process of several builds the program of the next test", "[.builder]") {
  Device& d = dev();
  CHECK(runOnce(d.programs()) == 10.0f);
  shutdown();
  CHECK(d.programs().builds() + d.programs().diskHits() >= 1);
}

TEST_CASE("two processes may build at once, a third builds nothing", "[opencl]") {
  const Removed folder{freshFolder("processes")};
  REQUIRE(makeDirs(folder.folder).ok());
  auto start = [&](int n) {
    const std::string cache = "FLAGOS_CACHE_DIR=" + folder.folder;
    // The driver keeps a cache of its own that is not made for sharing.
    const std::string own = "POCL_CACHE_DIR=" + folder.folder + "/driver" + std::to_string(n);
    std::vector<const char*> env{cache.c_str(), own.c_str()};
    for (char** e = environ; *e; ++e)
      if (std::strncmp(*e, "FLAGOS_CACHE_DIR=", 17) != 0 && std::strncmp(*e, "POCL_CACHE_DIR=", 15) != 0) env.push_back(*e);
    env.push_back(nullptr);
    const char* argv[] = {"unit_opencl", "one process of several builds the program of the next test", nullptr};
    pid_t pid = -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    REQUIRE(::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, const_cast<char**>(argv),
                          const_cast<char**>(env.data())) == 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  };
  auto ended = [](pid_t pid) {
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  };
  const pid_t a = start(1), b = start(2);
  CHECK(ended(a) == 0);
  CHECK(ended(b) == 0);
  auto third = cacheIn(folder.folder + "/kernels");
  CHECK(runOnce(*third) == 10.0f);
  CHECK(third->builds() == 0);
  CHECK(third->diskHits() == 1);
}
