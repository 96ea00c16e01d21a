// An explain document as text: what was asked, the rules, the candidates, the answer, what would change it.
#include <algorithm>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/metric.h"
#include "runtime/kde/router.h"

namespace flagos::kde {
namespace {

std::string str(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}
std::string duration(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number() ? formatSeconds(it->get<double>()) : "unknown";
}
std::string age(double seconds) {
  const auto ago = [](double n, const char* unit) { return counted(static_cast<uint64_t>(n), unit) + " ago"; };
  return seconds < 120 ? ago(seconds, "second") : seconds < 7200 ? ago(seconds / 60, "minute")
         : seconds < 172800 ? ago(seconds / 3600, "hour") : ago(seconds / 86400, "day");
}
std::string plain(const Json& v) { return v.is_string() ? v.get<std::string>() : v.is_null() ? "unknown" : dump(v); }

std::string signatureLine(const Json& s) {
  std::string out = str(s, "op") + "(";
  const auto args = s.find("args");
  if (args != s.end() && args->is_array())
    for (size_t i = 0; i < args->size(); ++i) {
      const Json& a = (*args)[i];
      if (i) out += ", ";
      if (!a.is_object()) { out += "none"; continue; }
      out += str(a, "dtype") + dump(a.value("shape", Json::array())) + " " +
             (a.contains("rank") ? "rank " + plain(a["rank"]) + " " : "") + str(a, "layout");
    }
  out += ")";
  const auto scalars = s.find("scalars");
  if (scalars != s.end() && scalars->is_object())
    for (const auto& [name, value] : scalars->items()) out += " " + name + "=" + plain(value);
  return out;
}

std::string operandsText(const Json& step) {
  std::string out;
  const auto o = step.find("operands");
  if (o == step.end() || !o->is_object()) return out;
  for (const auto& [name, value] : o->items()) out += (out.empty() ? "" : ", ") + name + " = " + plain(value);
  return out;
}

std::string stepText(const Json& s) {
  const bool rule = str(s, "kind") == "rule";
  std::string name = str(s, "name");
  name.resize(std::max<size_t>(name.size(), 24), ' ');
  std::string verdict = str(s, "verdict");
  verdict.resize(std::max<size_t>(verdict.size(), 9), ' ');
  std::string out = "  " + verdict + name;
  if (rule) return out + " " + str(s, "from") + "\n           if " + str(s, "predicate") + ": " + str(s, "action") + (verdict.rfind("match", 0) == 0 ? "" : "; " + str(s, "why")) +
                   (operandsText(s).empty() ? "" : "  [" + operandsText(s) + "]") + "\n";
  out += " predicted " + duration(s, "predicted_s") + ", measured " + duration(s, "measured_s");
  if (!str(s, "bound").empty()) out += ", bound by " + str(s, "bound");
  if (const auto kept = s.find("measured_choice"); kept != s.end() && kept->is_object())
    out += "; timed to choose: " + duration(*kept, "seconds") + " in " + counted(kept->value("runs", 0u), "run") + ", " + age(kept->value("age_s", 0.0));
  out += "\n           " + str(s, "why") + "\n";
  if (str(s, "verdict") != "chosen") return out;
  const auto c = s.find("cost");
  if (c == s.end() || !c->is_object()) return out;
  return out + "           compute " + duration(*c, "compute_s") + ", memory " + duration(*c, "memory_s") + ", copy " + duration(*c, "copy_s") +
         ", launch " + duration(*c, "launch_s") + ", host " + duration(*c, "host_s") + "\n";
}

std::string section(const Json& steps, const char* kind) {
  std::string out;
  for (const Json& s : steps)
    if (s.is_object() && str(s, "kind") == kind) out += stepText(s);
  return out;
}

}  // namespace

std::string explainText(const Json& e) {
  if (!e.is_object()) return "no explanation\n";
  std::string out = signatureLine(e.value("signature", Json::object())) + "\n";
  const Json device = e.value("device_description", Json::object());
  out += "on " + str(e, "device") + (str(device, "name").empty() ? "" : " " + str(device, "name")) +
         (str(device, "kind").empty() ? "" : " (" + str(device, "kind") + ")") + "\n";
  if (const std::string rates = str(device, "rates"); !rates.empty()) out += "rates from the device table: " + rates + "\n";
  if (const auto as = e.find("runs_as"); as != e.end() && as->is_array()) {
    out += "PyTorch runs it as";
    for (const Json& name : *as) out += " " + plain(name);
    out += "\n";
  }
  const Json steps = e.value("steps", Json::array());
  const std::string rules = section(steps, "rule");
  out += "rules, in order:\n" + (rules.empty() ? "  none for this operator\n" : rules);
  out += "candidates, in order:\n" + section(steps, "candidate");
  const std::string chosen = str(e, "chosen");
  out += "chosen: " + (chosen.empty() ? "nothing" : chosen) + ": " + str(e, "reason") + "\n";
  if (!chosen.empty())
    out += "  predicted " + duration(e, "predicted_s") + ", measured " + duration(e, "measured_s") +
           (str(e, "bound").empty() ? "" : ", bound by " + str(e, "bound")) + "\n";
  if (const auto w = e.find("why_not"); w != e.end() && w->is_object())
    out += "why not " + str(*w, "name") + ": " + str(*w, "why") + "\n";
  const Json changes = e.value("would_change", Json::array());
  if (!changes.empty()) out += "what would change the answer:\n";
  for (const Json& c : changes) out += "  if " + str(c, "if") + ": " + str(c, "then") + "\n";
  const auto counts = e.find("counts");
  if (counts != e.end() && counts->is_object() && counts->value("calls", Json()).is_number()) {
    out += "calls so far: " + plain((*counts)["calls"]);
    const Json by_route = counts->value("by_route", Json::object());
    for (const auto& [kernel, calls] : by_route.items()) out += ", " + kernel + " " + plain(calls);
    out += "\n";
  }
  return out;
}

}  // namespace flagos::kde
