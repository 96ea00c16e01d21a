// `flagos route`: the routing rules of a running process, seen and changed while it runs.
#include <filesystem>
#include <iostream>
#include <memory>

#include "profiler/cli/command.h"
#include "profiler/cli/live.h"
#include "runtime/base/bytes.h"
#include "runtime/base/paths.h"
#include "runtime/kde/measured.h"
#include "runtime/kde/rules/rule.h"

namespace flagos::cli {
namespace {

struct Options {
  std::string file, op, use;
  int pid = 0;
  bool json = false;
};

void printRules(const Json& reply, int pid) {
  std::cout << "process " << pid << "\n";
  const Json rules = reply.value("rules", Json());
  if (!rules.is_object()) { std::cout << "  no device is open yet, so no rules are in force\n"; return; }
  std::cout << "  mode " << rules.value("mode", "?") << ", fallback " << rules.value("fallback", "?") << "\n";
  if (const auto m = rules.find("measured"); m != rules.end() && m->is_object())
    std::cout << "  measured choices: " << counted(m->value("shapes", 0u), "shape") << ", FLAGOS_MEASURE=" << m->value("mode", "?") << "\n";
  for (const Json& r : rules.value("rules", Json::array())) {
    std::string action;
    for (const char* key : {"use", "prefer", "forbid"})
      if (r.contains(key)) action = std::string(key) + " " + r[key].get<std::string>();
    std::cout << "  " << r.value("level", "?") << "  " << r.value("name", "?") << "  " << r.value("op", "?") << " if " << r.value("when", "?")
              << ": " << action << "  (" << r.value("from", "?") << ")\n";
  }
  for (const Json& p : rules.value("problems", Json::array()))
    if (p.is_string()) std::cout << "  problem: " << p.get<std::string>() << "\n";
}

// Every process must take it: the first refusal is the answer. `text` replaces the rules where only "done" is to be said.
Exit send(const Options& o, const std::string& method, const Json& params) {
  auto answers = askProcesses(o.pid, method, params);
  if (!answers) return report("route", answers.error());
  Json documents = Json::array();
  Exit exit = Exit::ok;
  for (const Answer& a : *answers) {
    if (!a.reply) {
      Error e = a.reply.error();
      e.what = "process " + std::to_string(a.pid) + ": " + e.what;
      exit = report("route", e);
      continue;
    }
    Json doc = *a.reply;
    doc["pid"] = a.pid;
    if (!o.json) printRules(doc, a.pid);
    documents.push_back(std::move(doc));
  }
  if (o.json) std::cout << dump(Json{{"version", 1}, {"processes", documents}}, 2) << "\n";
  return exit;
}

Exit set(const Options& o) {
  if (!o.file.empty() && (!o.op.empty() || !o.use.empty())) return report("route", fail("set takes a file, or --op and --use, not both"));
  if (!o.file.empty()) {
    auto text = readFile(o.file);
    if (!text) return report("route", text.error());
    std::error_code ec;
    const std::string from = std::filesystem::absolute(o.file, ec).lexically_normal().string();
    // Checked here as well, so that a mistake is reported with its exit code before any process is asked.
    const auto parsed = kde::parseRules(*text, o.file, kde::Level::user);
    if (!parsed.errors.empty()) {
      Error e = parsed.errors.front();
      if (parsed.errors.size() > 1) e.what += " (and " + std::to_string(parsed.errors.size() - 1) + " more)";
      return report("route", e);
    }
    return send(o, "route.set", {{"rules", *text}, {"from", from}});
  }
  if (o.op.empty() || o.use.empty()) return report("route", fail("set needs a rule file, or --op OP and --use CANDIDATE"));
  if (auto rule = kde::makeRule(o.op, o.use, "set"); !rule) return report("route", rule.error());
  return send(o, "route.set", {{"op", o.op}, {"use", o.use}});
}

// What was measured to choose by: in running processes first, whose copies would be written again, then on disk.
Exit forget(const Options& o) {
  size_t gone = 0;
  auto answers = askProcesses(o.pid, "route.forget", {{"op", o.op}});
  if (!answers && o.pid) return report("route", answers.error());
  if (answers)
    for (const Answer& a : *answers) {
      if (!a.reply) {
        Error e = a.reply.error();
        e.what = "process " + std::to_string(a.pid) + ": " + e.what;
        return report("route", e);
      }
      gone = std::max(gone, a.reply->value("forgot", size_t{0}));
    }
  const auto on_disk = kde::MeasuredStore::forgetFile(cacheDir(), o.op);
  if (!on_disk) return report("route", on_disk.error());
  gone = std::max(gone, *on_disk);
  if (o.json) std::cout << dump(Json{{"version", 1}, {"forgot", gone}}, 2) << "\n";
  else std::cout << "forgot the times of " << counted(gone, "shape") << (o.op.empty() ? "" : " of " + o.op) << "\n";
  return Exit::ok;
}

}  // namespace

Run setupRoute(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.require_subcommand(1);
  auto common = [&](CLI::App* sub) {
    sub->add_option("--pid", o->pid, "only this process (default: all of this user)");
    sub->add_flag("--json", o->json, "one JSON document");
    return sub;
  };
  CLI::App* list = common(app.add_subcommand("list", "the rules in force, in order"));
  CLI::App* change = common(app.add_subcommand("set", "replace the user's rules by a file, or put one rule before all others"));
  change->add_option("FILE", o->file, "rule file");
  change->add_option("--op", o->op, "operator or glob, for example aten::mm");
  change->add_option("--use", o->use, "candidate, for example opencl.gemm.tiled");
  CLI::App* drop = common(app.add_subcommand("forget", "forget measured choices (FLAGOS_MEASURE), on disk and in running processes"));
  drop->add_option("--op", o->op, "only of this operator or glob (default: all)");
  common(app.add_subcommand("reset", "back to the rules that the process started with"));
  return [o, list, change, drop] {
    if (drop->parsed()) return forget(*o);
    if (list->parsed()) return send(*o, "route.list", Json::object());
    if (change->parsed()) return set(*o);
    return send(*o, "route.reset", Json::object());
  };
}

}  // namespace flagos::cli
