// `flagos doctor`: all that a bug report needs, and what to do about what is wrong. Personal data is left out: the home
// folder is written as ~, and no user or host is named. `--record DIR` writes a folder that `--root` replays.
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "profiler/cli/command.h"
#include "profiler/cli/torch_presence.h"
#include "runtime/base/bytes.h"
#include "runtime/base/json.h"
#include "runtime/base/paths.h"
#include "runtime/base/settings.h"
#include "runtime/base/version.h"
#include "runtime/dal/fingerprint/database.h"
#include "runtime/dal/inventory.h"
#include "runtime/dal/opencl_vendors.h"
#include "runtime/kde/rules/rule.h"

namespace flagos::cli {
namespace {

struct Options {
  bool json = false;
  std::string record;
};

struct Problem { std::string what, todo; };

std::string tilde(std::string s) {
  const char* home = std::getenv("HOME");
  if (!home || std::string(home).size() < 2) return s;
  const std::string h = home;
  for (size_t p = s.find(h); p != std::string::npos; p = s.find(h, p + 1)) s.replace(p, h.size(), "~");
  return s;
}

std::string osName() {
  const auto text = readFile("/etc/os-release", 65536);
  if (!text) return "unknown system (/etc/os-release cannot be read)";
  const auto p = text->find("PRETTY_NAME=\"");
  if (p == std::string::npos) return "unknown system";
  return text->substr(p + 13, text->find('"', p + 13) - p - 13);
}

std::string processor() {
  const auto text = readFile("/proc/cpuinfo", 4u << 20);
  const auto p = text ? text->find("model name") : std::string::npos;
  const auto colon = p == std::string::npos ? p : text->find(": ", p);
  return (colon == std::string::npos ? std::string("unknown processor")
                                     : text->substr(colon + 2, text->find('\n', colon) - colon - 2)) +
         ", " + counted(static_cast<uint64_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))), "core");
}

// The loader library's file, and the drivers that the vendors folder announces to it.
Json openClFiles(std::vector<Problem>& problems) {
  Json j{{"loader", nullptr}, {"drivers", Json::array()}};
  if (void* lib = ::dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL)) {
    link_map* map = nullptr;
    if (::dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map) j["loader"] = map->l_name;
  } else {
    problems.push_back({"libOpenCL.so.1 was looked for and is not there", "apt install ocl-icd-libopencl1"});
  }
  const dal::OpenClVendors vendors = dal::openClVendors();
  j["vendors"] = vendors.path;
  j["vendors_from"] = vendors.variable.empty() ? Json(nullptr) : Json(vendors.variable);
  if (!vendors.variable.empty() && ::access(vendors.path.c_str(), R_OK) != 0) {
    problems.push_back(
        {"no OpenCL driver: " + vendors.text() + " was looked for and is not there",
         "unset " + vendors.variable + "; install your card's OpenCL driver, or pocl-opencl-icd to run on the CPU"});
    return j;
  }
  // One .icd file or one library instead of a folder: the loader takes it as it is.
  if (!vendors.variable.empty() && ::access((vendors.path + "/.").c_str(), R_OK) != 0) {
    j["drivers"].push_back(Json{{"file", vendors.path}, {"library", ""}});
    return j;
  }
  std::vector<std::string> names;
  if (DIR* d = ::opendir(vendors.path.c_str())) {
    while (const dirent* e = ::readdir(d)) {
      const std::string n = e->d_name;
      if (n.size() > 4 && n.substr(n.size() - 4) == ".icd") names.push_back(n);
    }
    ::closedir(d);
  }
  std::sort(names.begin(), names.end());
  for (const std::string& n : names) {
    const std::string path = vendors.path + "/" + n;
    auto text = readFile(path, 4096);
    std::string library = text ? *text : "";
    library.resize(std::min(library.find_first_of("\r\n"), library.size()));
    if (library.empty()) problems.push_back({path + " names no library", "reinstall the package that owns it"});
    if (!library.empty() && library[0] == '/' && ::access(library.c_str(), R_OK) != 0)
      problems.push_back({path + " names " + library + ", which is not there", "reinstall the package that owns it"});
    j["drivers"].push_back(Json{{"file", path}, {"library", library}});
  }
  if (names.empty())
    problems.push_back({"no OpenCL driver: *.icd was looked for in " + vendors.text() + " and there is none",
                        "install your card's OpenCL driver, or pocl-opencl-icd to run on the CPU"});
  return j;
}

Json torchPart(std::vector<Problem>& problems) {
  const TorchPresence t = findTorch();
  Json j{{"found", !t.site.empty()},   {"site", nullptr},
         {"version", nullptr},         {"cuda", nullptr},
         {"flagos_package", t.flagos}, {"other_backends", t.backends}};
  if (t.site.empty()) {
    j["looked_for"] = Json::array();
    for (const std::string& f : t.looked_for) j["looked_for"].push_back(tilde(f));
    problems.push_back({"PyTorch is not installed: torch/version.py was looked for in " +
                            counted(t.looked_for.size(), "place") + " (VIRTUAL_ENV, CONDA_PREFIX, ~/.local, /usr)",
                        "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"});
    return j;
  }
  j["site"] = tilde(t.site);
  j["version"] = t.version;
  if (t.version.rfind("2.13.", 0) != 0)
    problems.push_back({"torch " + t.version + " in " + tilde(t.site) + " is not the version that FlagOS is built for",
                        "pip install torch==2.13.0"});
  if (!t.flagos)
    problems.push_back(
        {"the package flagos is not installed beside torch: flagos/__init__.py was looked for in " + tilde(t.site),
         "./dev build"});
  if (!t.cuda.empty()) {
    j["cuda"] = t.cuda;
    problems.push_back({"this torch is a CUDA " + t.cuda +
                            " build: while FlagOS is loaded, torch.accelerator means npu, also where CUDA works "
                            "(torch.cuda is unchanged)",
                        "TORCH_DEVICE_BACKEND_AUTOLOAD=0 switches FlagOS off for one process"});
  }
  for (const std::string& b : t.backends)
    problems.push_back(
        {"the package " + b + " is another device backend that torch loads by itself; PyTorch has room for one",
         "uninstall it, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the one you want"});
  return j;
}

Json runtimePart(std::vector<Problem>& problems) {
  const std::string dir = runtimeDir();
  Json j{{"runtime_dir", tilde(dir)}, {"cache_dir", tilde(cacheDir())}, {"config_dir", tilde(configDir())}};
  if (auto made = makeRuntimeDir(); !made)
    problems.push_back({"processes cannot be announced: " + tilde(made.error().text()), ""});
  // A socket's path has 107 bytes; a pid needs up to seven of them.
  if (dir.size() + 13 > 107)
    problems.push_back({"the runtime folder's path is too long for a socket: " + tilde(dir),
                        "set FLAGOS_RUNTIME_DIR to a shorter one"});
  if (auto made = makeDirs(cacheDir()); !made || ::access(cacheDir().c_str(), W_OK) != 0)
    problems.push_back({"compiled kernels cannot be kept, so that every start compiles them again: " +
                            tilde(made ? cacheDir() + " is not writable" : made.error().text()),
                        "set FLAGOS_CACHE_DIR to a folder of your own"});
  return j;
}

// The user's rule file as a process would read it; "no problem" must not be said of one that is refused.
Json rulesPart(std::vector<Problem>& problems) {
  const auto named = setting("FLAGOS_RULES");
  const std::string path = named ? *named : configDir() + "/rules.json";
  Json j{{"file", tilde(path)}, {"found", ::access(path.c_str(), F_OK) == 0}, {"rules", nullptr}};
  if (!named && !j["found"].get<bool>()) return j;
  std::vector<Error> errors;
  if (const auto text = readFile(path, 1u << 20)) {
    auto parsed = kde::parseRules(*text, path, kde::Level::user);
    j["rules"] = parsed.rules.size();
    errors = std::move(parsed.errors);
  } else {
    errors.push_back(text.error());
  }
  for (const Error& e : errors) problems.push_back({"routing rules: " + tilde(e.text()), ""});
  return j;
}

const char* autoload() {
  const char* v = std::getenv("TORCH_DEVICE_BACKEND_AUTOLOAD");
  return v ? v : "";
}

Json collect(std::vector<Problem>& problems, bool& usable) {
  utsname kernel{};
  (void)::uname(&kernel);
  Json j{{"version", 1},
         {"flagos", kVersion},
         {"system",
          {{"os", osName()},
           {"kernel", std::string(kernel.release)},
           {"machine", std::string(kernel.machine)},
           {"processor", processor()}}}};
  j["settings"] = Json::array();
  for (const Setting& s : settings()) {
    const auto v = setting(s.name);
    j["settings"].push_back(Json{{"name", s.name},
                                 {"value", v ? Json(tilde(*v)) : Json(nullptr)},
                                 {"values", s.values},
                                 {"default", s.fallback},
                                 {"effect", s.effect}});
  }
  j["warnings"] = Json::array();
  for (const std::string& w : settingWarnings()) {
    j["warnings"].push_back(tilde(w));
    problems.push_back({tilde(w), ""});
  }
  // Only the exact value 1 (or none) lets torch load a backend.
  j["autoload"] = *autoload() ? Json(autoload()) : Json(nullptr);
  if (*autoload() && std::string(autoload()) != "1")
    problems.push_back(
        {std::string("TORCH_DEVICE_BACKEND_AUTOLOAD=") + autoload() + " switches FlagOS off (only 1 switches it on)",
         "unset it"});
  j["opencl"] = openClFiles(problems);
  const dal::Inventory& machine = dal::machine();
  const Json devices = dal::toJson(machine);
  j["devices"] = devices["devices"];
  j["probes"] = devices["probes"];
  for (const std::string& w : machine.warnings) problems.push_back({w, "correct the list, or unset the variable"});
  for (const std::string& b : machine.broken) problems.push_back({"a recorded file cannot be read: " + tilde(b), ""});
  for (const dal::Device& d : machine.devices) {
    usable = usable || d.usable;
    if (!d.usable)
      problems.push_back({d.name + (d.pci.empty() ? "" : " at " + d.pci) + " cannot be used: " + d.why_unusable, ""});
  }
  for (const std::string& p : dal::database().problems()) problems.push_back({p, "flagos fingerprints check FILE"});
  j["torch"] = torchPart(problems);
  j["folders"] = runtimePart(problems);
  j["rules"] = rulesPart(problems);
  j["problems"] = Json::array();
  for (const Problem& p : problems)
    j["problems"].push_back(Json{{"what", p.what}, {"todo", p.todo.empty() ? Json(nullptr) : Json(p.todo)}});
  return j;
}

std::string text(const Json& j, const char* none = "-") { return j.is_string() ? j.get<std::string>() : none; }

void print(const Json& j) {
  const Json& s = j["system"];
  std::cout << "flagos " << text(j["flagos"]) << " on " << text(s["os"]) << ", kernel " << text(s["kernel"]) << " "
            << text(s["machine"]) << "\n"
            << "processor: " << text(s["processor"]) << "\n\nsettings\n";
  for (const Json& row : j["settings"])
    std::cout << "  " << text(row["name"]) << " = " << text(row["value"], "(not set)") << "  [" << text(row["values"])
              << ", default " << text(row["default"]) << "]  " << text(row["effect"]) << "\n";
  std::cout << "\nOpenCL\n  loader: " << text(j["opencl"]["loader"], "not found") << "\n";
  for (const Json& d : j["opencl"]["drivers"])
    std::cout << "  driver: " << text(d["file"]) << " -> " << text(d["library"]) << "\n";
  std::cout << "\ndevices\n";
  for (const Json& d : j["devices"])
    std::cout << "  " << text(d["device"]) << "  " << text(d["name"]) << " (" << text(d["kind"]) << ")"
              << (d["why_unusable"].is_string()   ? ": " + text(d["why_unusable"])
                  : d["why_no_index"].is_string() ? ": " + text(d["why_no_index"])
                                                  : "")
              << "\n";
  for (const Json& p : j["probes"])
    std::cout << "  probe " << text(p["name"]) << ": " << p["found"].get<int>() << " found"
              << (p["why_nothing"].is_string() ? " (" + text(p["why_nothing"]) + ")" : "") << "\n";
  const Json& t = j["torch"];
  std::cout << "\nPyTorch\n  "
            << (t["found"].get<bool>() ? "torch " + text(t["version"]) + " in " + text(t["site"])
                                       : std::string("not found"))
            << (t["flagos_package"].get<bool>() ? ", with the package flagos" : "") << "\n\nfolders\n";
  for (const auto& [name, value] : j["folders"].items()) std::cout << "  " << name << ": " << text(value) << "\n";
  std::cout << "\n";
  for (const Json& p : j["problems"])
    std::cout << "problem: " << text(p["what"]) << (p["todo"].is_string() ? "\n  do: " + text(p["todo"]) : "") << "\n";
  if (j["problems"].empty()) std::cout << "no problem found\n";
}

Exit record(const Options& o) {
  if (DIR* d = ::opendir(o.record.c_str())) {
    int entries = 0;
    while (::readdir(d)) ++entries;
    ::closedir(d);
    if (entries > 2) return report("doctor", fail("--record " + o.record + " is not empty", "Name a new folder"));
  }
  if (auto done = dal::recordMachine(o.record); !done) return report("doctor", done.error());
  std::cerr << "recorded; replay with: flagos devices --root " << o.record << "\n";
  return Exit::ok;
}

}  // namespace

Run setupDoctor(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_flag("--json", o->json, "one JSON document");
  app.add_option("--record", o->record, "write this machine to a folder that --root replays");
  return [o] {
    if (!o->record.empty()) return record(*o);
    std::vector<Problem> problems;
    bool usable = false;
    const Json j = collect(problems, usable);
    if (o->json) std::cout << dump(j) << "\n";
    else print(j);
    std::cout.flush();
    return problems.empty() ? Exit::ok : usable ? Exit::found : Exit::no_device;
  };
}

}  // namespace flagos::cli
