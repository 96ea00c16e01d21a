#include "lsp/findings/severity.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/settings.h"

namespace flagos::lsp {
namespace {

constexpr std::array kCodes = {
    FindingCode{"autocast-device", "warning", "autocast or GradScaler is set up for another device than the work inside it"},
    FindingCode{"copy-in-loop", "warning", "a copy between devices in every pass of a loop"},
    FindingCode{"cuda-extension", "hint", "a native extension that is built for CUDA only"},
    FindingCode{"cuda-only-check", "hint", "a device is chosen by torch.cuda.is_available() alone"},
    FindingCode{"data-parallel", "hint", "torch.nn.DataParallel instead of one process per device"},
    FindingCode{"device-bound-checkpoint", "hint", "a checkpoint that wants the device it was saved from"},
    FindingCode{"device-mismatch", "error", "operands of one operation are on different devices"},
    FindingCode{"element-loop", "warning", "a Python loop over the elements of a tensor on a device"},
    FindingCode{"generator-device", "warning", "a random generator on another device than what it is used for"},
    FindingCode{"graph-held", "warning", "an accumulated loss keeps the autograd graph of every pass"},
    FindingCode{"inductor-bypasses-routing", "hint", "torch.compile's default backend does not use this device's kernels"},
    FindingCode{"ineffective-async", "hint", "pinned memory without non_blocking, or non_blocking without pinned memory"},
    FindingCode{"late-visibility", "warning", "the visible devices are set after the devices were already used"},
    FindingCode{"loader-starved", "hint", "the device waits for a DataLoader that loads in the main process"},
    FindingCode{"make-then-move", "hint", "a tensor made on the CPU only to be moved at once"},
    FindingCode{"nccl-on-npu", "hint", "the NCCL process group on a device that is not NVIDIA's"},
    FindingCode{"optimizer-before-move", "warning", "a module is moved after its optimizer was made"},
    FindingCode{"plain-attribute", "warning", "a tensor or a list of modules that Module.to() does not see"},
    FindingCode{"predicted-fallback", "hint", "an operator that has no kernel on this device, or none for this dtype"},
    FindingCode{"predicted-oom", "hint", "more memory than the device has"},
    FindingCode{"result-dropped", "warning", "the result of a call that changes nothing in place is thrown away"},
    FindingCode{"stale-read", "warning", "the target of a non-blocking copy is read before the copy is known to be done"},
    FindingCode{"sync-in-loop", "warning", "the host waits for the device in every pass of a loop"},
    FindingCode{"upload-per-call", "hint", "a constant is copied to the device at every call"},
};

const std::vector<std::string> kSeverities = {"off", "hint", "information", "warning", "error"};

std::string trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return std::string(s);
}

}  // namespace

std::span<const FindingCode> findingCodes() { return kCodes; }

const FindingCode* findingCode(std::string_view code) {
  const auto it = std::find_if(kCodes.begin(), kCodes.end(), [&](const FindingCode& c) { return code == c.code; });
  return it == kCodes.end() ? nullptr : &*it;
}

Result<void> addSeverity(Severities& into, std::string_view code, std::string_view severity) {
  if (!findingCode(code)) {
    std::vector<std::string> names;
    for (const auto& c : kCodes) names.emplace_back(c.code);
    const std::string near = nearest(code, names);
    return fail("there is no finding `" + std::string(code) + "`", near.empty() ? "See docs/findings for the codes" : "Did you mean " + near + "?");
  }
  if (std::find(kSeverities.begin(), kSeverities.end(), severity) == kSeverities.end()) {
    const std::string near = nearest(severity, kSeverities);
    return fail("`" + std::string(severity) + "` is no severity for " + std::string(code),
                near.empty() ? "It is off, hint, information, warning or error" : "Did you mean " + near + "?");
  }
  into[std::string(code)] = severity;
  return {};
}

Result<Severities> parseSeverity(std::string_view list) {
  Severities out;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const std::string pair = trimmed(item);
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    if (equals == std::string::npos) return fail("`" + pair + "` names no severity", "Write for example " + pair + "=off");
    if (const auto done = addSeverity(out, trimmed(pair.substr(0, equals)), trimmed(pair.substr(equals + 1))); !done) return done.error();
  }
  return out;
}

Result<Severities> readSeverityFile(const std::string& path) {
  const auto text = readFile(path, 1u << 20);
  if (!text) return text.error();
  const auto json = parseJson(*text, path);
  if (!json) return json.error();
  const auto broken = [&](Error e, const std::string& word) {
    const auto at = lineColumn(*text, word.empty() ? 0 : std::min(text->size(), text->find("\"" + word + "\"")));
    e.where = path + ":" + std::to_string(at.line) + ":" + std::to_string(at.column);
    e.exit = Exit::broken_input;
    return e;
  };
  if (!json->is_object()) return broken(fail("this is no JSON object"), "");
  // A misspelt key would switch nothing off, and nobody would know. Other keys may be another program's.
  for (const auto& [key, value] : json->items())
    if (key != "severity" && !nearest(key, {"severity"}).empty())
      return broken(fail("there is no setting `" + key + "`", "Did you mean severity?"), key);
  Severities out;
  const auto it = json->find("severity");
  if (it == json->end()) return out;
  if (!it->is_object()) return broken(fail("`severity` is no object of codes and severities"), "severity");
  for (const auto& [code, value] : it->items()) {
    if (!value.is_string()) return broken(fail("the severity of " + code + " is no text", "It is off, hint, information, warning or error"), code);
    if (const auto done = addSeverity(out, code, value.get<std::string>()); !done) return broken(done.error(), code);
  }
  return out;
}

std::string findSettingsFile(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ec;
  for (fs::path dir = fs::absolute(folder, ec).lexically_normal(); !dir.empty(); dir = dir.parent_path()) {
    if (fs::is_regular_file(dir / kSettingsFile, ec)) return (dir / kSettingsFile).string();
    if (dir == dir.root_path()) break;
  }
  return {};
}

}  // namespace flagos::lsp
