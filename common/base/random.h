#pragma once

#include <cstdint>
#include <string>

namespace baton {

// Random values from the kernel's generator, which nobody can guess. For epochs, secrets, and seeds
// that no client chose.
uint64_t RandomU64();
std::string RandomBytes(int bytes);

}  // namespace baton
