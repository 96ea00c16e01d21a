// Whether a routing choice that was kept elsewhere is still good.
#pragma once
#include <cstdint>

namespace flagos::kde {

class Router;

// Changes (never back, never 0) whenever the router's rules or modes do. Hot; any thread.
uint32_t epochOf(const Router& router) noexcept;

}  // namespace flagos::kde
