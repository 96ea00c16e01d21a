#define Py_BUILD_CORE 1
#include "runtime/python/sites/frames.h"

#define FLAGOS_PY(minor) (PY_MAJOR_VERSION == 3 && PY_MINOR_VERSION == (minor))
#if (FLAGOS_PY(11) || FLAGOS_PY(12) || FLAGOS_PY(13)) && !defined(Py_GIL_DISABLED)
#include <internal/pycore_frame.h>
#define FLAGOS_DIRECT 1
#else
#define FLAGOS_DIRECT 0
#endif

namespace flagos::telemetry::frames {

#define FLAGOS_TEXT2(x) #x
#define FLAGOS_TEXT(x) FLAGOS_TEXT2(x)
const char* versionText() noexcept { return FLAGOS_TEXT(PY_MAJOR_VERSION) "." FLAGOS_TEXT(PY_MINOR_VERSION); }

bool directSupported() noexcept { return FLAGOS_DIRECT; }

#if FLAGOS_DIRECT

const void* innermost() noexcept {
  // Survives the release of the GIL, unlike PyThreadState_Get().
  const PyThreadState* state = PyGILState_GetThisThreadState();
#if FLAGOS_PY(13)
  return state ? state->current_frame : nullptr;
#else
  return state && state->cframe ? state->cframe->current_frame : nullptr;
#endif
}
const void* outer(const void* frame) noexcept { return static_cast<const _PyInterpreterFrame*>(frame)->previous; }

bool place(const void* frame, Place& out) noexcept {
  const auto* f = static_cast<const _PyInterpreterFrame*>(frame);
#if !FLAGOS_PY(11)
  if (f->owner == FRAME_OWNED_BY_CSTACK) return false;
#endif
#if FLAGOS_PY(13)
  auto* code = reinterpret_cast<PyCodeObject*>(f->f_executable);
  const _Py_CODEUNIT* at = f->instr_ptr;
#else
  PyCodeObject* code = f->f_code;
  const _Py_CODEUNIT* at = f->prev_instr;
#endif
  // Before its first instruction a frame is not complete; a generator's frame always is.
  if (f->owner != FRAME_OWNED_BY_GENERATOR && at < _PyCode_CODE(code) + code->_co_firsttraceable) return false;
  out = {code, reinterpret_cast<uintptr_t>(at)};
  return true;
}

static uintptr_t base(PyCodeObject* code) noexcept { return reinterpret_cast<uintptr_t>(_PyCode_CODE(code)); }

#else

const void* innermost() noexcept { return nullptr; }
const void* outer(const void*) noexcept { return nullptr; }
bool place(const void*, Place&) noexcept { return false; }
// Any address will do that is the code object's own for every offset: its instructions lie inside it.
static uintptr_t base(PyCodeObject* code) noexcept { return reinterpret_cast<uintptr_t>(code); }

#endif

int offset(const Place& p) noexcept { return static_cast<int>(p.key - base(p.code)); }
uintptr_t keyOf(PyCodeObject* code, int byte_offset) noexcept { return base(code) + static_cast<uintptr_t>(byte_offset); }

bool agreesWithPublicApi() {
  if (!directSupported()) return false;
  const void* mine = innermost();
  PyFrameObject* theirs = PyThreadState_GetFrame(PyThreadState_Get());
  int compared = 0;
  bool same = true;
  while (same && theirs) {
    Place p;
    while (mine && !place(mine, p)) mine = outer(mine);
    PyCodeObject* code = PyFrame_GetCode(theirs);
    same = mine && p.code == code && offset(p) == PyFrame_GetLasti(theirs);
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(theirs);
    Py_DECREF(theirs);
    theirs = back;
    if (mine) mine = outer(mine);
    ++compared;
  }
  Py_XDECREF(theirs);
  Place rest;
  while (mine && !place(mine, rest)) mine = outer(mine);
  return same && !mine && compared > 0;
}

}  // namespace flagos::telemetry::frames
