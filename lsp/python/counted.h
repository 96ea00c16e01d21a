// A counted pointer whose count is no atomic: what it points to belongs to one thread at a time.
//
// The analysis copies values all the time; std::shared_ptr would pay a locked instruction for each copy as soon as the
// process has a second thread. T counts in a member `Uses uses` and has a static `recycle(const T*)`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace flagos::lsp {

// The count of the object that it is in, never copied with it.
struct Uses {
  mutable uint32_t n = 0;
  Uses() = default;
  Uses(const Uses&) {}
  Uses& operator=(const Uses&) { return *this; }
};

template <typename T> class Counted {
 public:
  Counted() = default;
  Counted(std::nullptr_t) {}
  explicit Counted(T* p) : p_(p) { if (p_) ++p_->uses.n; }
  Counted(const Counted& o) : p_(o.p_) { if (p_) ++p_->uses.n; }
  Counted(Counted&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <typename U> requires std::is_convertible_v<U*, T*>
  Counted(const Counted<U>& o) : p_(o.get()) { if (p_) ++p_->uses.n; }
  template <typename U> requires std::is_convertible_v<U*, T*>
  Counted(Counted<U>&& o) noexcept : p_(o.take()) {}
  Counted& operator=(Counted o) noexcept { std::swap(p_, o.p_); return *this; }
  ~Counted() { if (p_ && --p_->uses.n == 0) std::remove_const_t<T>::recycle(p_); }
  T* get() const { return p_; }
  T* take() { return std::exchange(p_, nullptr); }
  void reset() { *this = Counted(); }
  T& operator*() const { return *p_; }
  T* operator->() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  template <typename U> friend bool operator==(const Counted& a, const Counted<U>& b) { return a.get() == b.get(); }
  friend bool operator==(const Counted& a, std::nullptr_t) { return a.p_ == nullptr; }

 private:
  T* p_ = nullptr;
};

}  // namespace flagos::lsp
