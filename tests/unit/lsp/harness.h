// A server without pipes: messages in, messages out, with the world's parts played by the test.
#pragma once
#include <set>

#include "lsp/server/server.h"
#include "tests/unit/catch.h"

namespace flagos::lsp {

struct Harness {
  std::vector<Json> sent;
  std::set<std::string> cancelled;
  std::shared_ptr<LiveView> view;
  std::vector<Server::Job> jobs;       // background work that was asked for
  Server server;
  explicit Harness(std::vector<std::string> devices = {"npu:0"})
      : server(ServerOptions{std::move(devices)},
               Server::World{[this](const Json& m) { sent.push_back(m); }, [this](const Json& id) { return cancelled.erase(id.dump()) > 0; },
                             [this]() -> std::shared_ptr<const LiveView> { return view; }, [] {},
                             [this](Server::Job job) { jobs.push_back(std::move(job)); }}) {}
  Json ask(const char* method, Json params, Json id = 7) {
    sent.clear();
    server.handle({{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", params}});
    Json answer;
    int answers = 0;
    for (const auto& m : sent) if (m.contains("id") && !m.contains("method")) { answer = m; ++answers; }
    CHECK(answers == 1);
    return answer;
  }
  void tell(const char* method, Json params) { server.handle({{"jsonrpc", "2.0"}, {"method", method}, {"params", params}}); }
  void start(Json capabilities = Json::object()) { ask("initialize", {{"capabilities", capabilities}}); tell("initialized", Json::object()); }
  void open(const std::string& uri, const std::string& text) {
    tell("textDocument/didOpen", {{"textDocument", {{"uri", uri}, {"languageId", "python"}, {"version", 1}, {"text", text}}}});
  }
  Json hover(const std::string& uri, int line, int character) {
    return ask("textDocument/hover", {{"textDocument", {{"uri", uri}}}, {"position", {{"line", line}, {"character", character}}}})["result"];
  }
  // What was sent with this method since `sent` was cleared.
  std::vector<Json> told(const char* method) const {
    std::vector<Json> out;
    for (const auto& m : sent) if (m.value("method", "") == method) out.push_back(m.contains("params") ? m["params"] : Json());
    return out;
  }
};

}  // namespace flagos::lsp
