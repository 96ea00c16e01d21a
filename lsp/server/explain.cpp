// The command flagos.explain: why the operators of a line take the route they take, asked of the process that runs it.
#include <algorithm>

#include "lsp/server/server.h"
#include "runtime/kde/router.h"
#include "runtime/telemetry/client.h"

namespace flagos::lsp {
namespace {

// Of the sites on a line, the one with most device time.
const LiveSite* onLine(const LiveFile& live, int line) {
  const LiveSite* found = nullptr;
  const auto look = [&](const LiveSite& s) {
    if (s.line != line || s.state == "not-executed" || s.measured_line <= 0) return;
    if (!found || s.share > found->share) found = &s;
  };
  for (const auto& s : live.sites) look(s);
  for (const auto& m : live.also) look(m.live);
  return found;
}

Result<Json> askProcess(int pid, const RanAt& at) {
  const auto all = telemetry::listProcesses();
  if (!all) return all.error();
  const auto entry = std::find_if(all->begin(), all->end(), [&](const auto& e) { return e.pid == pid && e.state != "ended"; });
  if (entry == all->end()) return fail("pid " + std::to_string(pid) + " has ended, and only a running process explains its routes", "start the program again");
  auto client = telemetry::Client::connect(*entry);
  if (!client) return client.error();
  return (*client)->request("explain", {{"file", at.path}, {"line", at.line}});
}

std::string texts(const Json& explanations, std::string& first) {
  std::string out;
  std::vector<Json> said;
  for (const auto& doc : explanations) {
    if (!doc.is_object()) continue;
    const Json key = {doc.value("signature", Json()), doc.value("query", Json())};
    if (std::find(said.begin(), said.end(), key) != said.end()) continue;   // its route changed while it ran
    said.push_back(key);
    if (first.empty()) first = textMember(member(doc, "signature"), "op", "this call") + " → " + textMember(doc, "chosen", "no route");
    out += (out.empty() ? "" : "\n") + kde::explainText(doc);
  }
  return out;
}

}  // namespace

void Server::explain(const Json& arguments, Reply& reply) {
  const Json& a = arguments.is_array() && !arguments.empty() ? arguments[0] : Json::object();
  const Place place = find(textMember(a, "uri"));
  if (!place.open || !member(a, "line").is_number_integer()) {
    reply.error(kInvalidParams, "flagos.explain needs one argument {\"uri\": an open document, \"line\": 0-based}");
    return;
  }
  const bool show = boolMember(a, "show");
  const auto nothing = [&](const std::string& why) {
    if (show) notify("window/showMessage", {{"type", 3}, {"message", why}});
    reply.result({{"explanations", Json::array()}, {"text", ""}, {"why_nothing", why}});
  };
  const Snapshot s = snapshot(*place.open);
  if (!s.live || !s.process) { nothing("no process attached: routes are explained by the process that takes them; `flagos explain OP --shapes …` explains without one"); return; }
  const int line = intMember(a, "line") + 1 + (place.cell ? place.cell->first_line : 0);
  const LiveSite* site = onLine(*s.live, line);
  if (!site) { nothing("attached to pid " + std::to_string(s.process->pid) + ", line not executed yet"); return; }
  if (!world_.background) { nothing("nothing can be asked in the background here"); return; }
  const RanAt at = ranAt(*s.process, place.open->ran_as, *site);
  auto waiting = std::make_shared<Reply>(std::move(reply));
  const std::string id = dump(waiting->id());
  pending_[id] = waiting;
  world_.background([this, id, at, show, pid = s.process->pid]() -> std::function<void()> {
    auto answer = askProcess(pid, at);
    return [this, id, at, show, pid, answer = std::move(answer)] {
      const auto it = pending_.find(id);
      if (it == pending_.end()) return;   // cancelled meanwhile
      const auto asked = it->second;
      pending_.erase(it);
      if (!answer) { asked->error(kInternalError, answer.error().text()); return; }
      const Json& list = member(*answer, "explanations");
      std::string first;
      const std::string text = list.is_array() ? texts(list, first) : std::string();
      if (show) {
        notify("window/logMessage", {{"type", 3}, {"message", at.path + ":" + std::to_string(at.line) + " in pid " + std::to_string(pid) + "\n" + text}});
        notify("window/showMessage", {{"type", 3}, {"message", text.empty() ? "no operator of this line was routed yet" : first + " (the whole explanation is in the log)"}});
      }
      asked->result({{"pid", pid}, {"file", at.path}, {"line", at.line}, {"explanations", list}, {"text", text},
                       {"why_nothing", text.empty() ? Json("no operator of this line was routed yet") : Json()}});
    };
  });
}

}  // namespace flagos::lsp
