// Texts and notebooks: opened, changed, saved, closed.
#include "lsp/live/drift.h"
#include "lsp/server/server.h"
#include "runtime/base/clock.h"

namespace flagos::lsp {
namespace {

constexpr uint64_t kTypingNs = 300'000'000;

// What a client without notebook support makes of a cell.
bool isCellUri(std::string_view uri) { return uri.starts_with("vscode-notebook-cell:"); }

Notebook::Entry entryOf(const Json& cell) { return {textMember(cell, "document"), intMember(cell, "kind", 1) == 2}; }

std::vector<Notebook::Entry> entriesOf(const Json& list) {
  std::vector<Notebook::Entry> out;
  if (list.is_array()) for (const auto& c : list) if (auto e = entryOf(c); !e.uri.empty()) out.push_back(std::move(e));
  return out;
}

}  // namespace

std::vector<TextChange> Server::changesOf(const Json& list) const {
  std::vector<TextChange> changes;
  if (!list.is_array()) return changes;
  for (const auto& c : list) {
    TextChange change;
    change.text = textMember(c, "text");
    if (const Json& r = member(c, "range"); r.is_object())
      change.range = Range{{intMember(member(r, "start"), "line", -1), intMember(member(r, "start"), "character", -1)},
                           {intMember(member(r, "end"), "line", -1), intMember(member(r, "end"), "character", -1)}};
    changes.push_back(std::move(change));
  }
  return changes;
}

Place Server::find(const std::string& uri) {
  if (const auto it = cells_.find(uri); it != cells_.end()) return {it->second, it->second->notebook->cell(uri)};
  const auto it = documents_.find(uri);
  return it == documents_.end() || it->second->notebook ? Place{} : Place{it->second.get(), nullptr};
}

void Server::edited(Open& o) {
  markDirty(o);
  const uint64_t now = nowNs();
  o.typing = now - o.edited_at < kTypingNs;
  o.edited_at = last_edit_ = now;
  front_ = o.doc.uri();
  markFollowers(o.doc.path());
}

void Server::markDirty(Open& o) {
  if (!o.dirty || !o.publish) o.dirty_since = nowNs();
  o.dirty = o.publish = true;
}

void Server::markAllDirty() { for (auto& [uri, o] : documents_) markDirty(*o); }

// Files that followed this one may say something else now.
void Server::markFollowers(const std::string& path) {
  if (path.empty()) return;
  bool any = false;
  for (auto& [uri, o] : documents_) {
    if (o->doc.path() == path) continue;
    for (const auto& f : o->follows) if (f == path) { markDirty(*o); any = true; break; }
  }
  if (any) refreshDiagnostics();
}

void Server::layOut(Open& o, int version) {
  o.doc.apply({{std::nullopt, o.notebook->layOut()}}, version, encoding_);
  o.ran_as.notebook = &*o.notebook;
}

void Server::didOpen(const Json& params) {
  const Json& d = member(params, "textDocument");
  const std::string uri = textMember(d, "uri");
  if (uri.empty() || uri.starts_with("git:") || cells_.count(uri)) return;
  const int version = intMember(d, "version");
  auto o = std::make_unique<Open>(Document(uri, pathOfUri(uri), version, textMember(d, "text")));
  if (const auto old = documents_.find(uri); old != documents_.end()) o->shown = old->second->shown;
  o->dirty_since = nowNs();
  o->ran_as.path = o->doc.path();
  learnFormerPaths(*o);
  if (isCellUri(uri)) {
    o->cell_as_text = true;
    o->notebook.emplace();
    o->notebook->splice(0, 0, {{uri, true}});
    o->notebook->openCell(uri, "python", version, textMember(d, "text"));
  } else {
    rememberBaseline(o->doc.text());
  }
  Open& placed = *(documents_[uri] = std::move(o));
  if (placed.notebook) {
    cells_[uri] = &placed;
    layOut(placed, version);
  }
  front_ = uri;
  live_dirty_ = true;
}

void Server::didChange(const Json& params) {
  const Json& d = member(params, "textDocument");
  const auto it = documents_.find(textMember(d, "uri"));
  if (it == documents_.end()) return;
  Open& o = *it->second;
  const auto changes = changesOf(member(params, "contentChanges"));
  const int version = intMember(d, "version", o.doc.version());
  if (o.cell_as_text) {
    o.notebook->changeCell(it->first, changes, version, encoding_);
    layOut(o, version);
  } else if (o.notebook) {
    return;   // a notebook's cells change by notebookDocument/didChange
  } else {
    o.doc.apply(changes, version, encoding_);
  }
  edited(o);
}

void Server::didSave(const Json& params) {
  const auto it = documents_.find(textMember(member(params, "textDocument"), "uri"));
  if (it == documents_.end() || it->second->notebook) return;
  rememberBaseline(it->second->doc.text());
  it->second->doc.saved();
  front_ = it->first;
}

void Server::forget(const std::string& uri) {
  const auto it = documents_.find(uri);
  if (it == documents_.end()) return;
  const int version = it->second->doc.version();
  for (const auto& shown : it->second->shown) clear(shown, version);
  std::erase_if(cells_, [&](const auto& c) { return c.second == it->second.get(); });
  const std::string path = it->second->doc.path();
  documents_.erase(it);
  markFollowers(path);   // they read the file on disk again
}

void Server::didClose(const Json& params) {
  const std::string uri = textMember(member(params, "textDocument"), "uri");
  const auto it = documents_.find(uri);
  if (it != documents_.end() && (!it->second->notebook || it->second->cell_as_text)) forget(uri);
}

void Server::notebookOpened(const Json& params) {
  const Json& n = member(params, "notebookDocument");
  const std::string uri = textMember(n, "uri");
  if (uri.empty() || uri.starts_with("git:")) return;
  forget(uri);
  auto o = std::make_unique<Open>(Document(uri, pathOfUri(uri), intMember(n, "version"), {}));
  o->notebook.emplace();
  o->notebook->splice(0, 0, entriesOf(member(n, "cells")));
  o->dirty_since = nowNs();
  o->ran_as.path = o->doc.path();
  Open& placed = *(documents_[uri] = std::move(o));
  const Json& texts = member(params, "cellTextDocuments");
  if (texts.is_array()) {
    for (const auto& t : texts) {
      placed.notebook->openCell(textMember(t, "uri"), textMember(t, "languageId", "python"), intMember(t, "version"), textMember(t, "text"));
      cells_[textMember(t, "uri")] = &placed;
    }
  }
  layOut(placed, intMember(n, "version"));
  front_ = uri;
  live_dirty_ = true;
}

void Server::notebookChanged(const Json& params) {
  const Json& n = member(params, "notebookDocument");
  const auto it = documents_.find(textMember(n, "uri"));
  if (it == documents_.end() || !it->second->notebook || it->second->cell_as_text) return;
  Open& o = *it->second;
  Notebook& notebook = *o.notebook;
  const Json& cells = path(params, "change.cells");
  const Json& structure = member(cells, "structure");
  if (const Json& array = member(structure, "array"); array.is_object())
    notebook.splice(intMember(array, "start"), intMember(array, "deleteCount"), entriesOf(member(array, "cells")));
  if (const Json& closed = member(structure, "didClose"); closed.is_array()) {
    for (const auto& c : closed) {
      const std::string uri = textMember(c, "uri");
      notebook.closeCell(uri);
      cells_.erase(uri);
      if (o.shown.erase(uri)) clear(uri, o.doc.version());
    }
  }
  if (const Json& opened = member(structure, "didOpen"); opened.is_array()) {
    for (const auto& t : opened) {
      notebook.openCell(textMember(t, "uri"), textMember(t, "languageId", "python"), intMember(t, "version"), textMember(t, "text"));
      cells_[textMember(t, "uri")] = &o;
    }
  }
  // A cell that was run comes here too, with its execution summary: nothing of that changes the text.
  if (const Json& data = member(cells, "data"); data.is_array())
    for (const auto& c : data) if (auto e = entryOf(c); !e.uri.empty()) notebook.setKind(e.uri, e.code);
  if (const Json& texts = member(cells, "textContent"); texts.is_array())
    for (const auto& t : texts)
      notebook.changeCell(textMember(member(t, "document"), "uri"), changesOf(member(t, "changes")), intMember(member(t, "document"), "version"), encoding_);
  layOut(o, intMember(n, "version", o.doc.version()));
  edited(o);
  live_dirty_ = true;
}

void Server::notebookSaved(const Json& params) {
  const std::string uri = textMember(member(params, "notebookDocument"), "uri");
  if (documents_.count(uri)) front_ = uri;
}

void Server::notebookClosed(const Json& params) {
  const std::string uri = textMember(member(params, "notebookDocument"), "uri");
  const auto it = documents_.find(uri);
  if (it != documents_.end() && it->second->notebook) forget(uri);
}

}  // namespace flagos::lsp
