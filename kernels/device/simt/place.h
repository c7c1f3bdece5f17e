#pragma once

#include <string>

namespace baton::simt {

// A place in a source file, as the compiler counts lines. As a default argument, `Place::Here()` is
// where the function is called.
struct Place {
  const char* file = nullptr;  // null: none
  int line = 0;

  static constexpr Place Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

bool operator==(const Place& a, const Place& b);

// "gemm.cu:41"
std::string ToString(const Place& place);

// "gemm.cu:41" for the return address of a call in this program, by its debug information and
// addr2line, else "code 0x1a2b". Takes some 5 ms: for failures.
std::string PlaceOfCode(const void* return_address);

}  // namespace baton::simt
