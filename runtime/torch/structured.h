// A profile names an operator once.
//
// PyTorch derives the functional and the in-place form of a structured operator from its `.out`: it makes the result and
// calls the `.out` through the dispatcher, where a CPU or CUDA build calls its own kernel. To observers (torch.profiler,
// RecordFunction) that would be two operators. While someone observes, these forms run with recording off until the
// `.out` arrives in our kernel, which turns it on again: what it calls is seen as ever.
#pragma once
#include <ATen/record_function.h>

namespace flagos::glue {

// True on a thread between a functional form and its `.out`.
bool& hiddenForm() noexcept;

// While it lives, operators are not recorded. For the call of `.out` in a form that is recorded itself.
class HideOut {
 public:
  HideOut() {
    if (at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value()) [[unlikely]] set(true);
  }
  ~HideOut() {
    if (set_) [[unlikely]] set(false);
  }
  HideOut(const HideOut&) = delete;
  HideOut& operator=(const HideOut&) = delete;

 private:
  void set(bool on);
  bool set_ = false;
};

// In a kernel: ends the nearest HideOut for as long as it lives.
class RecordAgain {
 public:
  RecordAgain() {
    if (hiddenForm()) [[unlikely]] set(true);
  }
  ~RecordAgain() {
    if (set_) [[unlikely]] set(false);
  }
  RecordAgain(const RecordAgain&) = delete;
  RecordAgain& operator=(const RecordAgain&) = delete;

 private:
  void set(bool on);
  bool set_ = false;
};

// Every structured operator's forms that have no kernel of ours. After all other kernels.
void installStructuredForms();

}  // namespace flagos::glue
