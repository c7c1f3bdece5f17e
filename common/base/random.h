#pragma once

#include <cstdint>
#include <string>

namespace baton {

// From the kernel's generator: nobody can guess it. For epochs, secrets and seeds nobody asked for.
uint64_t RandomU64();
std::string RandomBytes(int bytes);

}  // namespace baton
