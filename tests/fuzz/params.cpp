// Whole sessions of any messages: each request gets exactly one answer, and everything said is JSON that can be written.
// Input: lines; each is a method's number, a space, and the params as JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "lsp/protocol/repair.h"
#include "lsp/server/server.h"

using namespace flagos;
using namespace flagos::lsp;

namespace {
const char* const kMethods[] = {
    "textDocument/didOpen", "textDocument/didChange", "textDocument/hover", "textDocument/codeAction", "codeAction/resolve", "textDocument/inlayHint",
    "inlayHint/resolve", "textDocument/completion", "textDocument/diagnostic", "textDocument/documentSymbol", "workspace/executeCommand", "flagos/tree",
    "flagos/sync", "notebookDocument/didOpen", "notebookDocument/didChange", "notebookDocument/didSave", "notebookDocument/didClose", "textDocument/didSave",
    "textDocument/didClose", "workspace/didChangeConfiguration", "workspace/didChangeWatchedFiles", "workspace/didRenameFiles", "workspace/didDeleteFiles",
    "workspace/didChangeWorkspaceFolders", "$/cancelRequest", "$/setTrace", "window/workDoneProgress/cancel", "no/such"};
constexpr size_t kCount = sizeof kMethods / sizeof *kMethods;
bool notice(size_t m) { return m < 2 || (m > 12 && m < kCount - 1); }
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::map<std::string, int> answers;
  Server::World world;
  world.send = [&](const Json& m) {
    (void)dump(m);
    if (m.contains("id") && !m.contains("method")) ++answers[dump(m["id"])];
  };
  Server server(ServerOptions{std::vector<std::string>{"npu:0"}}, world);
  const char* encodings[] = {"utf-8", "utf-16", "utf-32"};
  Json capabilities = {{"general", {{"positionEncodings", {encodings[data[0] % 3]}}}}};
  if (data[0] & 4) capabilities["textDocument"]["diagnostic"] = Json::object();
  if (data[0] & 8) capabilities["textDocument"]["documentSymbol"]["hierarchicalDocumentSymbolSupport"] = true;
  server.handle({{"id", "start"}, {"method", "initialize"}, {"params", {{"capabilities", capabilities}}}});
  server.handle({{"method", "initialized"}, {"params", Json::object()}});
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  int id = 0;
  while (!rest.empty() && id < 64) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    size_t method = 0;
    while (!line.empty() && line.front() >= '0' && line.front() <= '9') { method = (method * 10 + static_cast<size_t>(line.front() - '0')) % 1000; line.remove_prefix(1); }
    auto params = parseJson(line, "params", {1u << 16, 32});
    if (!params) params = parseJson(repaired(line), "params", {1u << 16, 32});
    if (!params) continue;
    Json message = {{"jsonrpc", "2.0"}, {"method", kMethods[method % kCount]}, {"params", std::move(*params)}};
    const std::string key = std::to_string(++id);
    if (!notice(method % kCount)) message["id"] = id;
    server.handle(message);
    if (message.contains("id") && answers[key] != 1) std::abort();
    server.tick(static_cast<uint64_t>(id) * 1'000'000'000, id % 3 == 0);
  }
  return 0;
}
