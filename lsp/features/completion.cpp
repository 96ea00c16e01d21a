#include <algorithm>
#include <set>

#include "lsp/features/snapshot.h"
#include "lsp/python/value.h"

namespace flagos::lsp {

std::vector<Completion> completions(const Machine& machine, std::string_view line) {
  const auto quote = line.find_last_of("\"'");
  if (quote == std::string_view::npos) return {};
  const auto typed = line.substr(quote + 1);
  if (typed.find_first_not_of("abcdefghijklmnopqrstuvwxyz:0123456789") != std::string_view::npos) return {};
  auto before = line.substr(0, quote);
  while (!before.empty() && before.back() == ' ') before.remove_suffix(1);
  bool wanted = before.ends_with(".to(") || before.ends_with("torch.device(") || before.ends_with("set_device(") || before.ends_with("set_default_device(");
  if (!wanted && before.ends_with('=')) {
    auto name = before.substr(0, before.size() - 1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    wanted = name.ends_with("device") || name.ends_with("map_location") || name.ends_with("device_map");
  }
  if (!wanted) return {};
  std::vector<Completion> out;
  std::set<std::string> types;
  for (const auto& d : machine.devices) out.push_back({d, "device of this machine"});
  for (const auto& d : machine.devices) {
    const std::string type(deviceType(d));
    if (types.insert(type).second) out.push_back({type, "the current " + type + " device"});
  }
  out.push_back({"cpu", "the CPU"});
  out.push_back({"meta", "shapes only, no memory"});
  std::erase_if(out, [&](const Completion& c) { return !c.label.starts_with(typed); });
  return out;
}

}  // namespace flagos::lsp
