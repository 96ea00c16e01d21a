#include "lsp/server/program.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "lsp/check/report.h"
#include "lsp/findings/severity.h"
#include "lsp/python/value.h"
#include "lsp/server/loop.h"
#include "lsp/server/machine.h"
#include "runtime/base/settings.h"
#include "runtime/base/version.h"

namespace flagos::lsp {
namespace {

constexpr const char* kHelp =
    "flagos-lsp: which device each line of a PyTorch program uses, and what that costs\n"
    "\n"
    "  flagos-lsp [--stdio] [--devices LIST]          the language server, on stdin and stdout\n"
    "  flagos-lsp --check PATH... [options]           check files and folders once\n"
    "\n"
    "  --json, --sarif      one JSON document on stdout\n"
    "  --devices LIST       assume these devices (npu:0,npu:1 or none) instead of this machine's; npu:0=MODEL takes a\n"
    "                       model of the fingerprint table, so that time and memory are predicted for it\n"
    "  --device MODEL       the same as --devices npu:0=MODEL\n"
    "  --attach [PID]       join the values of a running process\n"
    "  --encoding E         columns in JSON: utf-16 (default), utf-8 or utf-32\n"
    "  --severity LIST      for example sync-in-loop=off,data-parallel=warning; also in a file .flagos.json\n"
    "                       ({\"severity\": {\"sync-in-loop\": \"off\"}}) in the checked folder or above it\n"
    "  --version, --help\n";

int wrong(const std::string& sentence) {
  std::fprintf(stderr, "flagos-lsp: %s\n", sentence.c_str());
  return 2;
}

bool isNumber(const char* s) { return *s && std::strspn(s, "0123456789") == std::strlen(s) && std::strlen(s) < 9; }

}  // namespace

int runProgram(int argc, char** argv) {
  CheckOptions check;
  bool checking = false;
  const std::vector<std::string> known = {"--check", "--json", "--sarif", "--devices", "--device", "--attach", "--encoding", "--severity", "--stdio", "--version", "--help", "--clientProcessId"};
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&]() -> const char* { return i + 1 < argc ? argv[++i] : nullptr; };
    if (a == "--check") checking = true;
    else if (a == "--json") check.json = true;
    else if (a == "--sarif") check.sarif = true;
    else if (a == "--stdio") continue;
    else if (a.starts_with("--clientProcessId")) { if (a.find('=') == std::string::npos) value(); }
    else if (a == "--help" || a == "-h") { std::fputs(kHelp, stdout); return 0; }
    else if (a == "--version") { std::printf("flagos-lsp %s\n", kVersion); return 0; }
    else if (a == "--attach") {
      check.attach = true;
      if (i + 1 < argc && isNumber(argv[i + 1])) check.pid = std::atoi(argv[++i]);
    } else if (a == "--devices" || a.starts_with("--devices=")) {
      const char* v = a == "--devices" ? value() : a.c_str() + 10;
      if (!v) return wrong("--devices needs a list, for example npu:0,npu:1 or none");
      check.devices = splitDevices(v);
      if (auto m = machineFrom(*check.devices); !m) return wrong("--devices: " + m.error().text());
    } else if (a == "--device" || a.starts_with("--device=")) {
      const char* v = a == "--device" ? value() : a.c_str() + 9;
      if (!v || !*v) return wrong("--device needs a model of the fingerprint table, for example --device \"Radeon RX 7900 XTX\"");
      check.devices = std::vector<std::string>{setting("FLAGOS_DEVICE_NAME").value_or("npu") + ":0=" + v};
      if (auto m = machineFrom(*check.devices); !m) return wrong("--device: " + m.error().text());
    } else if (a == "--encoding" || a.starts_with("--encoding=")) {
      const char* v = a == "--encoding" ? value() : a.c_str() + 11;
      if (v && !std::strcmp(v, "utf-8")) check.encoding = Encoding::utf8;
      else if (v && !std::strcmp(v, "utf-16")) check.encoding = Encoding::utf16;
      else if (v && !std::strcmp(v, "utf-32")) check.encoding = Encoding::utf32;
      else return wrong("--encoding is utf-8, utf-16 or utf-32");
    } else if (a == "--severity" || a.starts_with("--severity=")) {
      const char* v = a == "--severity" ? value() : a.c_str() + 11;
      if (!v) return wrong("--severity needs a list, for example sync-in-loop=off");
      auto list = parseSeverity(v);
      if (!list) return wrong("--severity: " + list.error().text());
      for (auto& [code, level] : *list) check.severity[code] = level;
    } else if (a.size() > 1 && a[0] == '-') {
      const std::string near = nearest(a, known);
      return wrong("there is no option " + a + (near.empty() ? "; see --help" : "; did you mean " + near + "?"));
    } else {
      check.paths.push_back(a);
    }
  }
  if (check.json && check.sarif) return wrong("--json and --sarif: choose one");
  if (checking) {
    if (check.paths.empty()) return wrong("--check needs a file or a folder");
    for (const std::string& path : check.paths)
      if (path.empty()) return wrong("--check was given an empty path; give one, or leave it out");
    return runCheck(check);
  }
  if (check.json || check.sarif || check.attach || !check.severity.empty()) return wrong("--json, --sarif, --attach and --severity need --check PATH");
  if (!check.paths.empty()) return wrong("a path needs --check: flagos-lsp --check " + check.paths[0]);
  ServerOptions server;
  server.devices = check.devices;
  return serve(std::move(server));
}

}  // namespace flagos::lsp
