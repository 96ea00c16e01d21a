// `flagos explain`: why a call takes the route it takes, and what would change that. Offline from a device of this machine
// or of the fingerprint table; live from a source line of a running process.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>

#include "profiler/cli/command.h"
#include "profiler/cli/live.h"
#include "runtime/base/settings.h"
#include "runtime/dal/fingerprint/database.h"
#include "runtime/dal/inventory.h"
#include "runtime/kde/catalog/catalog.h"
#include "runtime/kde/query.h"
#include "runtime/dal/rates.h"
#include "runtime/kde/router.h"
#include "runtime/kde/rules/rule.h"

namespace flagos::cli {
namespace {

struct Options {
  kde::Query query;
  std::string device, rules, why_not, at;
  int pid = 0;
  bool json = false, fields = false;
};

// ---- --fields ----

Exit printFields(const Options& o) {
  kde::Family only = kde::Family::count_;
  if (!o.query.op.empty()) {
    if (auto s = kde::signatureOf({o.query.op, "", "", "", ""}, 0); !s) return report("explain", s.error());
    only = kde::familyOf(o.query.op);
  }
  Json list = Json::array();
  auto add = [&](const char* family, kde::Field field, std::string_view meaning) {
    static constexpr const char* types[] = {"integer", "bytes", "boolean", "text", "dtype", "device kind"};
    const kde::FieldInfo& i = kde::fieldInfo(field);
    list.push_back({{"name", i.name}, {"family", family ? Json(family) : Json(nullptr)},
                    {"type", types[static_cast<size_t>(i.type)]}, {"meaning", meaning}});
  };
  for (int i = 0; i <= static_cast<int>(kde::Field::contiguous); ++i)
    add(nullptr, static_cast<kde::Field>(i), kde::fieldInfo(static_cast<kde::Field>(i)).meaning);
  for (int f = 0; f < static_cast<int>(kde::Family::count_); ++f) {
    const auto family = static_cast<kde::Family>(f);
    if (only != kde::Family::count_ && only != family) continue;
    const std::string name(kde::familyName(family));
    for (const kde::FieldUse& u : kde::familyFields(family)) add(name.c_str(), u.field, u.meaning);
  }
  for (int i = static_cast<int>(kde::Field::device_kind); i < static_cast<int>(kde::Field::count_); ++i)
    add(nullptr, static_cast<kde::Field>(i), kde::fieldInfo(static_cast<kde::Field>(i)).meaning);
  if (o.json) {
    Json doc = {{"version", 1}, {"op", o.query.op.empty() ? Json(nullptr) : Json(o.query.op)},
                {"family", only == kde::Family::count_ ? Json(nullptr) : Json(std::string(kde::familyName(only)))}, {"fields", list}};
    std::cout << dump(doc, 2) << "\n";
    return Exit::ok;
  }
  std::string heading = "?";
  for (const Json& f : list) {
    const std::string family = f["family"].is_string() ? f["family"].get<std::string>() : "";
    if (family != heading) std::cout << (family.empty() ? "every operator:\n" : "family " + family + ":\n");
    heading = family;
    std::string name = f["name"];
    name.resize(std::max<size_t>(name.size(), 16), ' ');
    std::cout << "  " << name << " " << f["meaning"].get<std::string>() << "\n";
  }
  return Exit::ok;
}

// ---- offline ----

struct Target { dal::DeviceDescription description; std::string name, identity; int index = 0; std::string rates; };

Result<Target> target(const std::string& device) {
  const std::string prefix = setting("FLAGOS_DEVICE_NAME").value_or("npu");
  const auto model = [](const std::string& name) -> Result<Target> {
    auto d = dal::describeModel(name);
    if (!d) return d.error();
    return Target{*d, "fingerprint:" + d->name, "", 0, dal::modelRates(name)};
  };
  if (device.rfind("fingerprint:", 0) == 0) return model(device.substr(12));
  int index = 0;
  std::string_view rest = device;
  if (rest.substr(0, prefix.size()) == prefix) rest.remove_prefix(prefix.size());
  else if (rest.substr(0, 3) == "npu") rest.remove_prefix(3);
  else if (!rest.empty()) {
    if (auto named = model(device)) return named;
    return fail("'" + device + "' is no device", "Write --device " + prefix + ":0 or --device \"fingerprint:<model>\"");
  }
  if (!rest.empty()) {
    const auto r = std::from_chars(rest.data() + 1, rest.data() + rest.size(), index);
    if (rest[0] != ':' || rest.size() < 2 || r.ec != std::errc() || r.ptr != rest.data() + rest.size() || index < 0)
      return fail("'" + device + "' is no device", "Write --device " + prefix + ":0 or --device \"fingerprint:<model>\"");
  }
  int count = 0;
  for (const dal::Device& d : dal::machine().devices) {
    if (!d.index) continue;
    ++count;
    if (*d.index != index) continue;
    Target t{d.description, prefix + ":" + std::to_string(index), d.fingerprint.identity + d.fingerprint.build, index};
    dal::loadRates(t.description, t.identity);
    if (!settingIsOn("FLAGOS_SHARED_MEMORY", true)) t.description.shared_memory = false;
    return t;
  }
  const std::string name = prefix + ":" + std::to_string(index);
  if (count == 0)
    return fail("no device of this machine is usable", "`flagos devices` says why; --device \"fingerprint:<model>\" asks about another one", Exit::no_device);
  return fail(name + " does not exist: this machine has " + std::to_string(count) + (count == 1 ? " device" : " devices"), {}, Exit::no_device);
}

Exit offline(const Options& o) {
  if (o.query.op.empty()) return report("explain", fail("no operator was named", "Write flagos explain aten::mm --shapes \"[64,32] [32,16]\", or --at FILE:LINE"));
  if (!o.why_not.empty() && kde::candidateId(o.why_not) == kde::kNoCandidate) {
    const std::string near = kde::nearestCandidate(o.why_not);
    std::string all;
    for (const std::string& n : kde::candidateNames()) all += (all.empty() ? "" : ", ") + n;
    return report("explain", fail("no candidate is named '" + o.why_not + "'", near.empty() ? "There are " + all : "Did you mean " + near + "?"));
  }
  if (auto s = kde::signatureOf(o.query, 0); !s) return report("explain", s.error());
  auto t = target(o.device);
  if (!t) return report("explain", t.error());
  const auto signature = kde::signatureOf(o.query, t->index);
  if (!signature) return report("explain", signature.error());

  kde::RouterOptions options;
  options.device = t->description;
  options.identity = t->identity;
  kde::switchesFromEnvironment(options);
  const auto router = kde::Router::create(options);
  if (!o.rules.empty()) {   // a file named here must be right; read once, since it may be a pipe: --rules <(...)
    auto text = readFile(o.rules);
    if (!text) return report("explain", text.error());
    if (auto set = router->setRules(*text, o.rules); !set) return report("explain", set.error());
  } else {
    for (const std::string& p : router->problems()) std::cerr << "flagos explain: " << p << "\n";
  }

  Json doc = router->explain(*signature, o.why_not);
  doc["device"] = t->name;
  if (!t->rates.empty()) doc["device_description"]["rates"] = t->rates;
  doc["query"] = {{"op", o.query.op}, {"shapes", o.query.shapes}, {"dtype", o.query.dtype.empty() ? "float32" : o.query.dtype},
                  {"device", o.device.empty() ? t->name : o.device}, {"rules", o.rules.empty() ? Json(nullptr) : Json(o.rules)}};
  doc["counts"] = {{"calls", nullptr}, {"by_route", Json::object()}, {"why_missing", "no process was asked"}};
  if (o.json) std::cout << dump(doc, 2) << "\n";
  else std::cout << kde::explainText(doc);
  return Exit::ok;
}

// ---- live ----

// A call whose route changed while it ran is told once: both routes have the same explanation now.
Json distinct(const Json& list) {
  Json out = Json::array();
  for (const Json& doc : list) {
    if (!doc.is_object()) continue;
    const bool known = std::any_of(out.begin(), out.end(), [&](const Json& other) {
      return other.value("signature", Json()) == doc.value("signature", Json()) && other.value("query", Json()) == doc.value("query", Json());
    });
    if (!known) out.push_back(doc);
  }
  return out;
}

Exit atLine(const Options& o) {
  const auto colon = o.at.rfind(':');
  int line = 0;
  if (colon != std::string::npos) {
    const auto r = std::from_chars(o.at.data() + colon + 1, o.at.data() + o.at.size(), line);
    if (r.ec != std::errc() || r.ptr != o.at.data() + o.at.size()) line = 0;
  }
  if (line < 1) return report("explain", fail("'" + o.at + "' is no place in a file", "Write --at FILE:LINE"));
  std::error_code ec;
  const std::string file = std::filesystem::absolute(o.at.substr(0, colon), ec).lexically_normal().string();

  auto answers = askProcesses(o.pid, "explain", {{"file", file}, {"line", line}, {"why_not", o.why_not}}, 0.7);
  if (!answers) return report("explain", answers.error());
  for (const Answer& a : *answers) {
    if (!a.reply) continue;
    const Json list = distinct(a.reply->value("explanations", Json::array()));
    if (list.empty()) continue;
    // The contract's document is one call: the one with most device time. The line's others follow in it.
    Json doc = list[0];
    doc["pid"] = a.pid;
    doc["others"] = Json::array();
    for (size_t i = 1; i < list.size(); ++i) doc["others"].push_back(list[i]);
    if (o.json) { std::cout << dump(doc, 2) << "\n"; return Exit::ok; }
    std::cout << file << ":" << line << " in process " << a.pid << "\n";
    for (size_t i = 0; i < list.size(); ++i) {
      const Json query = list[i].value("query", Json::object());
      const bool backward = query.is_object() && query.value("backward", false);
      std::cout << "\n" << (backward ? "[backward of this line] " : "") << kde::explainText(list[i]);
    }
    return Exit::ok;
  }
  std::string asked;
  for (const Answer& a : *answers)
    asked += (asked.empty() ? "" : "; ") + std::to_string(a.pid) + (a.reply ? ": nothing ran there yet" : ": " + a.reply.error().text());
  return report("explain", fail("no process ran work of " + file + ":" + std::to_string(line) + " (" + asked + ")",
                                "Lines that ran are listed by flagos top", Exit::no_device));
}

Exit run(const Options& o) {
  if (o.fields) return printFields(o);
  const kde::Query& q = o.query;
  if (!o.at.empty() && !(q.op + q.shapes + q.dtype + q.layout + q.scalars + o.device + o.rules).empty())
    return report("explain", fail("--at asks a running process about what it did; an operator, --shapes and the like ask offline", "Use one of them"));
  if (o.at.empty() && o.pid) return report("explain", fail("--pid goes with --at FILE:LINE"));
  return o.at.empty() ? offline(o) : atLine(o);
}

}  // namespace

Run setupExplain(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("OP", o->query.op, "operator, for example aten::mm");
  app.add_option("--shapes", o->query.shapes, "operands, for example \"[1024,512] [512,256]\"; - is an absent one");
  app.add_option("--dtype", o->query.dtype, "one for all operands, or one per operand (default float32)");
  app.add_option("--layout", o->query.layout, "contiguous (default), channels_last, strided or overlapping");
  app.add_option("--scalars", o->query.scalars, "for example \"stride=2 padding=1\"");
  app.add_option("--device", o->device, "npu:N of this machine (default npu:0), or a model: fingerprint:<name>, or a part of it");
  app.add_option("--rules", o->rules, "the user's rule file instead of FLAGOS_RULES");
  app.add_option("--why-not", o->why_not, "say why this candidate was not chosen");
  app.add_option("--at", o->at, "FILE:LINE of a running process instead of an operator");
  app.add_option("--pid", o->pid, "with --at: only this process");
  app.add_flag("--fields", o->fields, "list what rules can ask for (of OP, if given)");
  app.add_flag("--json", o->json, "one JSON document");
  return [o] { return run(*o); };
}

}  // namespace flagos::cli
