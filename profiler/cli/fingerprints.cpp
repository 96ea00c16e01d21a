// `flagos fingerprints check|new|match|list`: the device database, its validator and its matcher.
#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include "profiler/cli/command.h"
#include "runtime/base/json.h"
#include "runtime/base/settings.h"
#include "runtime/dal/fingerprint/check.h"
#include "runtime/dal/fingerprint/match.h"

namespace flagos::cli {
namespace {

struct Options {
  CLI::App *check = nullptr, *draft = nullptr, *match = nullptr, *list = nullptr;
  std::vector<std::string> files;
  bool json = false;
};

Exit check(const Options& o) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string& f : o.files) {
    auto text = readFile(f, 16u << 20);
    if (!text) {
      Error e = text.error();
      e.exit = Exit::broken_input;
      return report("fingerprints check", e);
    }
    files.emplace_back(f, std::move(*text));
  }
  if (o.files.empty()) {
    if (const auto dir = setting("FLAGOS_FINGERPRINTS")) {
      for (const std::string& problem : dal::database().problems()) std::cerr << problem << "\n";
    }
    for (const std::string& n : dal::builtinNames()) files.emplace_back(n + ".json", std::string(dal::builtinText(n)));
  }
  const auto pci_ids = readFile("/usr/share/misc/pci.ids", 8u << 20);
  std::vector<dal::CheckError> errors;
  size_t entries = 0;
  for (const auto& [file, text] : files) {
    for (auto& e : dal::checkFingerprints(text, file, pci_ids ? std::string_view(*pci_ids) : std::string_view()))
      errors.push_back(std::move(e));
    if (dal::Database db; db.add(text, file)) entries += db.models().size();
  }
  for (auto& e : dal::checkTogether(files)) errors.push_back(std::move(e));
  if (o.json) {
    Json list = Json::array();
    for (const auto& e : errors) list.push_back(Json{{"file", e.file}, {"line", e.line}, {"reason", e.reason}});
    std::cout << dump(Json{{"version", 1}, {"files", files.size()}, {"entries", entries}, {"errors", std::move(list)}})
              << "\n";
  } else {
    for (const auto& e : errors) std::cout << e.file << ":" << e.line << ": " << e.reason << "\n";
    std::cout << files.size() << " files, " << entries << " entries, " << errors.size() << " errors\n";
  }
  return errors.empty() ? Exit::ok : Exit::found;
}

// Reads a line of any length up to 1 MiB; longer ones are cut, which the parser then reports.
bool readLine(std::string& line) {
  line.clear();
  if (std::ferror(stdin)) return false;
  int c;
  while ((c = ::getchar_unlocked()) != EOF && c != '\n')
    if (line.size() < (1u << 20)) line.push_back(static_cast<char>(c));
  return c != EOF || !line.empty();
}

// A board is flat, so few brackets prove that it is not deep: then one pass is enough. Anything else gets the full
// check.
Result<Json> parseLine(const std::string& line) {
  if (std::count_if(line.begin(), line.end(), [](char c) { return c == '{' || c == '['; }) <= 8) {
    Json j = Json::parse(line, nullptr, false);
    if (!j.is_discarded()) return j;
  }
  return parseJson(line, "stdin", {1u << 20, 16});
}

Exit match(const Options& o) {
  const dal::Database& db = dal::database();
  std::string line, out;
  Exit exit = Exit::ok;
  for (int number = 1; readLine(line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto doc = parseLine(line);
    const auto board = doc ? dal::boardFromJson(*doc) : Result<dal::Board>(doc.error());
    Json answer = dal::toJson(dal::match(db, board ? *board : dal::Board{}));
    if (!board) {
      // One answer a line, in order, whatever the input.
      exit = Exit::broken_input;
      std::string where = board.error().where;
      const auto column = where.rfind(':');
      where = "stdin:" + std::to_string(number) + (doc || column == std::string::npos ? "" : where.substr(column));
      answer["error"] = where + ": " + board.error().what;
      std::cerr << "flagos fingerprints match: " << where << ": " << board.error().what << "\n";
    }
    if (o.json) {
      out += dump(answer);
    } else {
      out += answer["result"].get<std::string>();
      if (answer["model"].is_string()) out += "  " + answer["model"].get<std::string>();
      else
        for (const Json& c : answer["candidates"]) out += "  " + c["model"].get<std::string>() + "?";
    }
    out += "\n";
    if (out.size() > 65536) {
      std::cout << out;
      out.clear();
    }
  }
  std::cout << out << std::flush;
  if (std::ferror(stdin)) return report("fingerprints match", fail("stdin cannot be read", "Pipe boards in, one JSON object a line", Exit::broken_input));
  return exit;
}

Exit list(const Options& o) {
  Json all = Json::array();
  for (const dal::Model& m : dal::database().models()) {
    if (!o.json) {
      std::cout << m.vendor << ":" << (m.device.empty() ? "----" : m.device) << "  " << m.name << "\n";
      continue;
    }
    all.push_back(
        Json{{"vendor", m.vendor}, {"device", m.device.empty() ? Json(nullptr) : Json(m.device)}, {"model", m.name}});
  }
  if (o.json) std::cout << dump(Json{{"version", 1}, {"models", std::move(all)}}) << "\n";
  return Exit::ok;
}

}  // namespace

Run setupFingerprints(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.require_subcommand(1);
  o->check = app.add_subcommand("check", "validate fingerprint files (default: the built-in table)");
  o->check->add_option("files", o->files, "fingerprint files");
  o->check->add_flag("--json", o->json, "one JSON document");
  o->draft = app.add_subcommand("new", "write a draft entry for this machine's unmatched cards");
  auto draft = setupFingerprintDraft(*o->draft);
  o->match = app.add_subcommand("match", "match boards: one JSON object a line on stdin, one answer a line");
  o->match->add_flag("--json", o->json, "answers as JSON");
  o->list = app.add_subcommand("list", "names of all models in the table");
  o->list->add_flag("--json", o->json, "one JSON document");
  return [o, draft] {
    if (o->check->parsed()) return check(*o);
    if (o->match->parsed()) return match(*o);
    if (o->list->parsed()) return list(*o);
    return draft();
  };
}

}  // namespace flagos::cli
