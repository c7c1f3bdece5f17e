#pragma once

#include <string>

namespace baton::simt {

// A place in a source file. As a default argument, `Place::Here()` is the place of the call.
struct Place {
  const char* file = nullptr;  // null: no place
  int line = 0;

  static constexpr Place Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

bool operator==(const Place& a, const Place& b);

// Returns text such as "gemm.cu:41".
std::string ToString(const Place& place);

// Returns text such as "gemm.cu:41" for the return address of a call in this program, from its
// debug information and addr2line. Returns "code 0x1a2b" if that fails. Takes some 5 ms, so it is
// meant for failures.
std::string PlaceOfCode(const void* return_address);

}  // namespace baton::simt
