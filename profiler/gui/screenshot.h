#pragma once
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace flagos::gui {

// Writes the current framebuffer (width x height pixels, RGBA read from OpenGL) as PNG, and beside it, with the suffix
// .txt instead of .png, the strings that were drawn, one a line.
Result<void> writeScreenshot(const std::string& png_path, int width, int height, const std::vector<std::string>& strings);

}  // namespace flagos::gui
