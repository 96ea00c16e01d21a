// Errors as values. Every part returns Result<T> across its edge; no exception crosses a part (DESIGN section 2).
// An Error is written for the person who must act on it: what went wrong, where, and what to do.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace flagos {

// Program exit codes, fixed by the command contract: an Error knows which one it leads to.
enum class Exit : int { ok = 0, found = 1, usage = 2, no_device = 3, broken_input = 4 };

struct Error {
  std::string what;            // one sentence, names the op / device / file / value
  std::string where;           // "file:line:column", a path, or empty
  std::string todo;            // what the user can do, or empty
  Exit exit = Exit::usage;

  // "where: what. todo" on one line, for stderr and exception texts.
  std::string text() const;
};

inline std::string Error::text() const {
  std::string s = where.empty() ? what : where + ": " + what;
  if (!todo.empty()) s += (s.empty() || s.back() == '.' ? " " : ". ") + todo;
  return s;
}

inline Error fail(std::string what, std::string todo = {}, Exit exit = Exit::usage) {
  return Error{std::move(what), {}, std::move(todo), exit};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}
  explicit operator bool() const noexcept { return v_.index() == 0; }
  bool ok() const noexcept { return v_.index() == 0; }
  // Asking a failed Result for its value is our own mistake; std::get throws in that case.
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(v_); }

 private:
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : e_(std::move(error)) {}
  explicit operator bool() const noexcept { return !e_; }
  bool ok() const noexcept { return !e_; }
  const Error& error() const { return *e_; }

 private:
  std::optional<Error> e_;
};

}  // namespace flagos
