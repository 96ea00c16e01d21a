#include "lsp/text/document.h"

namespace flagos::lsp {
namespace {
constexpr size_t kIncrementalFrom = 256u << 10;   // from here on broken text too is read incrementally
}

Document::Document(std::string uri, std::string path, int version, std::string text)
    : uri_(std::move(uri)), path_(std::move(path)), text_(std::move(text)), lines_(text_), version_(version) {
  saved();
}

void Document::saved() {
  if (text_.size() > kMaxSourceBytes) return;
  LineOrigins now{text_, std::vector<int>(static_cast<size_t>(lines_.lineCount()))};
  for (size_t i = 0; i < now.origin.size(); ++i) now.origin[i] = static_cast<int>(i);
  if (origins_.size() >= 4) origins_.erase(origins_.begin());
  origins_.push_back(std::move(now));
}

void Document::followLines(Span removed, std::string_view inserted) {
  const auto first = static_cast<size_t>(lines_.lineOf(removed.begin)), last = static_cast<size_t>(lines_.lineOf(removed.end));
  const bool at_start = removed.begin == lines_.lineStart(static_cast<int>(first));
  const bool to_start = removed.end == lines_.lineStart(static_cast<int>(last));
  const auto breaks = static_cast<size_t>(LineIndex(inserted).lineCount() - 1);
  for (auto& o : origins_) {
    std::vector<int> fresh(breaks + 1, -1);
    if (first == last) {
      // Whole lines put above push the line down; anything else keeps it where it begins.
      fresh[at_start ? breaks : 0] = o.origin[first];
    } else if (breaks == 0) {
      fresh[0] = o.origin[at_start ? last : first];
    } else {
      const size_t whole = at_start && to_start ? std::min(breaks, last - first) : 1;
      for (size_t i = 0; i < whole; ++i) fresh[i] = o.origin[first + i];
      fresh[breaks] = o.origin[last];
    }
    o.origin.erase(o.origin.begin() + static_cast<std::ptrdiff_t>(first), o.origin.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    o.origin.insert(o.origin.begin() + static_cast<std::ptrdiff_t>(first), fresh.begin(), fresh.end());
  }
}

void Document::replace(Span removed, std::string_view inserted) {
  if (tree_ && *tree_) {
    (*tree_)->edit(text_, lines_, removed, inserted);
    tree_is_old_ = true;
  } else {
    tree_.reset();
  }
  followLines(removed, inserted);
  text_.replace(removed.begin, removed.end - removed.begin, inserted);
  lines_ = LineIndex(text_);
  // A CR beside an LF can join or part two lines where the edit touches them: then the lines are not followed.
  std::erase_if(origins_, [&](const LineOrigins& o) { return o.origin.size() != static_cast<size_t>(lines_.lineCount()); });
}

void Document::apply(const std::vector<TextChange>& changes, int version, Encoding encoding) {
  for (const auto& change : changes) {
    if (!change.range) {
      text_ = change.text;
      lines_ = LineIndex(text_);
      tree_.reset();
      tree_is_old_ = false;
      out_of_sync_ = false;
      origins_.clear();
      continue;
    }
    const auto& r = *change.range;
    const bool impossible = r.start.line < 0 || r.start.character < 0 || r.end < r.start || r.start.line > lines_.lineCount();
    if (impossible || out_of_sync_) { out_of_sync_ = true; continue; }
    replace({lines_.offset(text_, r.start, encoding), lines_.offset(text_, r.end, encoding)}, change.text);
  }
  version_ = version;
}

const Result<SyntaxTree>& Document::tree() {
  if (!tree_ || tree_is_old_) {
    // How the parser recovers from an error may depend on what it reused. Text without errors has one tree, so that of a
    // small text is kept only if both trees are sound: an edit then gives what reading the whole text anew would give.
    const bool big = text_.size() >= kIncrementalFrom;
    const SyntaxTree* old = tree_ && *tree_ && (big || !(*tree_)->hasErrors()) ? &tree_->value() : nullptr;
    auto fresh = SyntaxTree::parse(text_, old);
    if (old && !big && (!fresh || fresh->hasErrors())) fresh = SyntaxTree::parse(text_);
    tree_.emplace(std::move(fresh));
    tree_is_old_ = false;
  }
  return *tree_;
}

std::string pathOfUri(std::string_view uri) {
  constexpr std::string_view scheme = "file://";
  if (!uri.starts_with(scheme)) return {};
  uri.remove_prefix(scheme.size());
  if (uri.starts_with("localhost/")) uri.remove_prefix(9);
  if (!uri.starts_with('/')) return {};
  const auto hex = [](char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; };
  std::string out;
  for (size_t i = 0; i < uri.size(); ++i) {
    if (uri[i] == '?' || uri[i] == '#') break;
    if (uri[i] == '%' && i + 2 < uri.size() && hex(uri[i + 1]) >= 0 && hex(uri[i + 2]) >= 0) {
      out += static_cast<char>(hex(uri[i + 1]) * 16 + hex(uri[i + 2]));
      i += 2;
    } else {
      out += uri[i];
    }
  }
  return out;
}

std::string uriOfPath(std::string_view path) {
  std::string out = "file://";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/-_.~").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      constexpr char digits[] = "0123456789ABCDEF";
      out += '%';
      out += digits[static_cast<unsigned char>(c) >> 4];
      out += digits[static_cast<unsigned char>(c) & 15];
    }
  }
  return out;
}

}  // namespace flagos::lsp
