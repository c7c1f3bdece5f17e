#pragma once

#include <cstdint>
#include <string>

namespace baton {

// Returns an unpredictable random value from the kernel's generator. Use it for epochs, secrets,
// and seeds that no client chose.
uint64_t RandomU64();
std::string RandomBytes(int bytes);

}  // namespace baton
