// The interpreter's own frames of the calling thread, read without the GIL. All that depends on the CPython version is in
// frames.cpp.
#pragma once
#include <Python.h>

#include <cstdint>

namespace flagos::telemetry::frames {

// One frame: its code object (borrowed) and where it is in it. `key` is an address inside the code object, different
// for every instruction: together with a kept code object it names a place in the program.
struct Place {
  PyCodeObject* code = nullptr;
  uintptr_t key = 0;
};

bool directSupported() noexcept;             // this build knows the running interpreter's layout
const char* versionText() noexcept;          // "3.11"

// Innermost frame of the calling thread, or null: opaque, valid while the thread stays inside our C call.
const void* innermost() noexcept;
const void* outer(const void* frame) noexcept;
// False for frames that run no Python yet (being set up, or the interpreter's own entry).
bool place(const void* frame, Place& out) noexcept;

// Byte offset of a place's instruction, as the public API counts it. Needs no GIL.
int offset(const Place&) noexcept;
uintptr_t keyOf(PyCodeObject* code, int offset) noexcept;

// With the GIL: true if the direct reading of this thread agrees with the public API frame by frame.
bool agreesWithPublicApi();

}  // namespace flagos::telemetry::frames
