#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

// Functions that the tests with random histories share.
namespace baton {

// Returns the number in an environment variable, or `otherwise` if it is not set. Throws if the
// variable holds no number.
inline int Setting(const char* variable, int otherwise) {
  const char* given = std::getenv(variable);
  return given != nullptr ? std::stoi(given) : otherwise;
}

// Returns a random number from `low` to `high`. The same generator gives the same numbers with
// every standard library.
inline int Between(std::mt19937_64& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
}

}  // namespace baton
