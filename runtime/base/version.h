#pragma once
namespace flagos {
inline constexpr const char* kVersion = "0.1.0";
}
