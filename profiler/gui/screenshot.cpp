#include "profiler/gui/screenshot.h"

#include <GL/gl.h>
#include <png.h>

#include <cstring>

#include "runtime/base/json.h"

namespace flagos::gui {

Result<void> writeScreenshot(const std::string& png_path, int width, int height, const std::vector<std::string>& strings) {
  std::vector<unsigned char> pixels(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  glPixelStorei(GL_PACK_ALIGNMENT, 1);
  glReadPixels(0, 0, width, height, GL_RGB, GL_UNSIGNED_BYTE, pixels.data());
  png_image image;
  std::memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  // OpenGL's first row is the bottom one: a negative stride turns the picture over.
  if (!png_image_write_to_file(&image, png_path.c_str(), 0, pixels.data(), -width * 3, nullptr)) {
    Error e = fail(std::string("cannot write the picture: ") + image.message);
    e.where = png_path;
    return e;
  }
  std::string all;
  for (const std::string& s : strings) all += s + "\n";
  std::string txt = png_path;
  if (txt.size() > 4 && txt.compare(txt.size() - 4, 4, ".png") == 0) txt.erase(txt.size() - 4);
  return writeFileAtomic(txt + ".txt", all, 0644);
}

}  // namespace flagos::gui
