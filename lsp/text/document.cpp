#include "lsp/text/document.h"

namespace flagos::lsp {
namespace {
constexpr size_t kIncrementalFrom = 256u << 10;
}

Document::Document(std::string uri, std::string path, int version, std::string text)
    : uri_(std::move(uri)), path_(std::move(path)), text_(std::move(text)), lines_(text_), version_(version) {}

void Document::replace(Span removed, std::string_view inserted) {
  if (tree_ && *tree_) {
    (*tree_)->edit(text_, lines_, removed, inserted);
    tree_is_old_ = true;
  } else {
    tree_.reset();
  }
  text_.replace(removed.begin, removed.end - removed.begin, inserted);
  lines_ = LineIndex(text_);
}

void Document::apply(const std::vector<TextChange>& changes, int version, Encoding encoding) {
  for (const auto& change : changes) {
    if (!change.range) {
      text_ = change.text;
      lines_ = LineIndex(text_);
      tree_.reset();
      tree_is_old_ = false;
      out_of_sync_ = false;
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
    const SyntaxTree* old = tree_ && *tree_ && text_.size() >= kIncrementalFrom ? &tree_->value() : nullptr;
    auto fresh = SyntaxTree::parse(text_, old);
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
