// Readers: addresses, files under a root, permissions of a recorded user, and a watch on what is read.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "runtime/base/paths.h"
#include "runtime/dal/libraries.h"
#include "runtime/dal/merge.h"
#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"
#include "tests/unit/catch.h"
#include "tests/unit/dal/machines.h"

using namespace flagos;

namespace {

struct Folder {
  std::string dir;
  Folder() {
    char name[] = "/tmp/flagos-dal-XXXXXX";
    dir = ::mkdtemp(name);
  }
  ~Folder() { (void)!std::system(("rm -rf '" + dir + "'").c_str()); }
  void write(const std::string& path, const std::string& text) const {
    const std::string to = dir + path;
    REQUIRE(makeDirs(to.substr(0, to.rfind('/'))));
    REQUIRE(writeFileAtomic(to, text));
  }
};

}  // namespace

TEST_CASE("PCI addresses parse, compare by number and print as the kernel does") {
  struct Row { const char* text; const char* normal; };
  for (const Row& r :
       {Row{"0000:03:00.0", "0000:03:00.0"}, Row{"00000000:47:00.0", "0000:47:00.0"}, Row{"03:1f.7", "0000:03:1f.7"},
        Row{"10000:E1:00.0", "10000:e1:00.0"}, Row{"", ""}, Row{"0000:03:00", ""}, Row{"0000:03:20.0", ""},
        Row{"0000:03:00.8", ""}, Row{"000:03:00.0", ""}, Row{"0000:3:00.0", ""}, Row{"000000000:03:00.0", ""},
        Row{"zz:00.0", ""}, Row{"0000:03:00.0 ", ""}, Row{".", ""}, Row{":.", ""}})
    CHECK(dal::normalPciAddress(r.text) == r.normal);
  CHECK(*dal::parsePciAddress("0000:f1:00.0") < *dal::parsePciAddress("10000:01:00.0"));
}

TEST_CASE("a library is looked for where the loader would, and a machine without such folders says nothing") {
  Folder f;
  const auto presence = [&] { return dal::libraryPresence(dal::Root(f.dir), "libclblast.so.1"); };
  CHECK(presence() == dal::Presence::unknown);
  f.write("/usr/lib/libother.so.1", "");
  CHECK(presence() == dal::Presence::no);
  f.write("/usr/lib/x86_64-linux-gnu/libclblast.so.1", "");
  CHECK(presence() == dal::Presence::yes);
}

TEST_CASE("files are read with caps and without blocking") {
  Folder f;
  f.write("/sys/a", "0x1002\n");
  f.write("/sys/n", "42\n");
  f.write("/sys/bad", "0xzz");
  f.write("/sys/minus", "-5");
  f.write("/sys/huge", "99999999999999999999999");
  f.write("/sys/empty", "");
  f.write("/sys/long", std::string(100000, 'x'));
  REQUIRE(::mkfifo((f.dir + "/sys/pipe").c_str(), 0600) == 0);
  REQUIRE(::symlink("/dev/zero", (f.dir + "/sys/zero").c_str()) == 0);
  REQUIRE(::symlink("loop", (f.dir + "/sys/loop").c_str()) == 0);
  const dal::Root root(f.dir + "/");
  CHECK_FALSE(root.live());
  CHECK(root.text("/sys/a").value_or("?") == "0x1002");
  CHECK(root.number("/sys/a").value_or(0) == 0x1002);
  CHECK(root.number("/sys/n").value_or(0) == 42);
  for (const char* p : {"/sys/bad", "/sys/minus", "/sys/huge", "/sys/empty", "/sys/none", "/sys/pipe", "/sys/zero",
                        "/sys/loop", "/sys"})
    CHECK_FALSE(root.number(p).has_value());
  CHECK(root.text("/sys/long")->size() == 4096);
  CHECK_FALSE(root.text("/sys/pipe").has_value());
  CHECK_FALSE(root.text("/sys/zero").has_value());
  CHECK(root.list("/sys/none").empty());
  CHECK(root.linkName("/sys/loop").value_or("?") == "loop");
  CHECK_FALSE(root.resolve("/sys/zero").has_value());   // leads out of the folder
}

TEST_CASE("texts of drivers are shown without control characters") {
  struct Row { const char* in; const char* out; };
  for (const Row& r : {Row{"Radeon\x1b[31m RX\n", "Radeon [31m RX"}, Row{"a\tb\x7f", "a b"},
                       Row{"\xc2\x9b"
                           "31m",
                           "  31m"},
                       Row{"Gr\xc3\xbc\xc3\x9f", "Gr\xc3\xbc\xc3\x9f"}, Row{"\xc2", "\xc2"}, Row{"", ""}}) {
    std::string s = r.in;
    dal::makePrintable(s);
    CHECK(s == r.out);
  }
  Folder f;
  f.write("/opencl.json",
          R"({"platforms":[{"name":"p\u001b","devices":[{"CL_DEVICE_NAME":"x\n\u001b[2J","CL_DEVICE_TYPE":"GPU"}]}]})");
  const auto inventory = dal::enumerate({f.dir, std::nullopt, false});
  REQUIRE(inventory.devices.size() == 1);
  CHECK(inventory.devices[0].name == "x  [2J");
  CHECK(inventory.devices[0].drivers[0].platform == "p");
}

TEST_CASE("links are followed inside the folder only, absolute ones too") {
  Folder f;
  f.write("/sys/devices/pci0/card/vendor", "0x1002");
  f.write("/sys/bus/x", "");
  REQUIRE(::symlink("/sys/devices/pci0/card", (f.dir + "/sys/bus/absolute").c_str()) == 0);
  REQUIRE(::symlink("../../../../../../../sys/devices/pci0/card", (f.dir + "/sys/bus/climbing").c_str()) == 0);
  REQUIRE(::symlink("/etc", (f.dir + "/sys/bus/etc").c_str()) == 0);
  const dal::Root root(f.dir);
  CHECK(root.text("/sys/bus/absolute/vendor").value_or("?") == "0x1002");
  CHECK(root.text("/sys/bus/climbing/vendor").value_or("?") == "0x1002");
  CHECK(root.resolve("/sys/bus/absolute").value_or("?") == "/sys/devices/pci0/card");
  CHECK_FALSE(root.text("/sys/bus/etc/passwd").has_value());   // this machine's own file
  CHECK(root.list("/sys/bus/etc").empty());
  CHECK_FALSE(root.exists("/sys/bus/etc/passwd"));
  REQUIRE(::symlink("..", (f.dir + "/sys/devices/pci0/card/up").c_str()) == 0);
  CHECK(root.linkName("/sys/devices/pci0/card/up").value_or("?") == "pci0");
  CHECK(root.exists("/sys/bus/etc"));                          // the link itself
}

TEST_CASE("permissions are judged for the recorded user, one class of the mode at a time") {
  struct Row { const char* node; const char* status; bool allowed; const char* why; };
  const Row rows[] = {
      {"0660\t0\t109", "Uid:\t1000\t1000\nGid:\t1000\t1000\nGroups:\t27 109\n", true, ""},
      {"0660\t0\t109", "Uid:\t1000\t1000\nGid:\t109\t109\nGroups:\t\n", true, ""},
      {"0660\t0\t109", "Uid:\t1000\t1000\nGid:\t1000\t1000\nGroups:\t27\n", false, "not in gid 109"},
      {"0660\t0\t109", "", false, "not in gid 109"},  // without the file: uid 1000, no groups
      {"0666\t0\t0", "", true, ""},
      {"0600\t0\t0", "Uid:\t0\t0\n", true, ""},
      {"0600\t1000\t0", "", true, ""},
      {"0066\t1000\t0", "", false, "mode 0066"},               // the owner's own bits deny
      {"0606\t0\t109", "Groups:\t109\n", false, "mode 0606"},  // the group's bits deny, others' do not count
      {"0640\t0\t109", "Groups:\t109\n", false, "mode 0640"},  // read only is not enough
  };
  for (const Row& r : rows) {
    Folder f;
    f.write("/dev/dri/renderD128", "");
    f.write("/nodes.tsv", std::string("/dev/dri/renderD128\t") + r.node + "\nbroken line\n");
    if (*r.status) f.write("/proc/self/status", r.status);
    const dal::NodeAccess a = dal::Root(f.dir).node("/dev/dri/renderD128");
    INFO(r.node << " " << r.status);
    CHECK(a.exists);
    CHECK(a.judged);
    CHECK(a.allowed == r.allowed);
    if (!r.allowed) CHECK_THAT(a.why, Catch::Contains(r.why));
  }
  Folder f;
  f.write("/dev/x", "");
  CHECK_FALSE(dal::Root(f.dir).node("/dev/x").judged);
  CHECK_FALSE(dal::Root(f.dir).node("/dev/y").exists);
}

TEST_CASE("a sleeping card's sensors and config space are not read") {
  auto options = machines::expected("laptop-asleep").options;
  dal::Root root(options.root);
  std::set<std::string> read;
  root.on_read = [&](const std::string& p) { read.insert(p); };
  const dal::Inventory inventory = dal::enumerateAt(root, options);
  REQUIRE(inventory.devices.size() == 2);
  const std::string card = "/sys/bus/pci/devices/0000:01:00.0/";
  CHECK(read.count(card + "power/runtime_status") == 1);
  const std::set<std::string> harmless = {
      "class",  "vendor", "device", "subsystem_vendor", "subsystem_device", "revision", "power/runtime_status",
      "driver", "physfn", "drm"};
  for (const std::string& p : read)
    if (p.rfind(card, 0) == 0) {
      INFO(p);
      CHECK(harmless.count(p.substr(card.size())) == 1);
    }
  // The same card awake is read: the test above watches the right files.
  read.clear();
  auto awake = machines::expected("permission-render").options;
  dal::Root other(awake.root);
  other.on_read = [&](const std::string& p) { read.insert(p); };
  (void)dal::enumerateAt(other, awake);
  CHECK(read.count("/sys/bus/pci/devices/0000:03:00.0/mem_info_vram_total") == 1);
  CHECK(read.count("/sys/bus/pci/devices/0000:03:00.0/config") == 1);
}
