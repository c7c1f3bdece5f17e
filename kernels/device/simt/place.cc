#include "kernels/device/simt/place.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

#include <elf.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

// This program's ELF header. The linker defines the symbol.
extern "C" const char __executable_start[];

namespace baton::simt {
namespace {

constexpr char kDeviceCode[] = "device_code_emulated.h:";

const char* BaseName(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash == nullptr ? file : slash + 1;
}

}  // namespace

bool operator==(const Place& a, const Place& b) {
  return a.line == b.line && (a.file == b.file || (a.file != nullptr && b.file != nullptr &&
                                                   std::strcmp(a.file, b.file) == 0));
}

std::string ToString(const Place& place) {
  if (place.file == nullptr) return "its start";
  return absl::StrCat(BaseName(place.file), ":", place.line);
}

std::string PlaceOfCode(const void* return_address) {
  // The call lies just before the address that it returns to. In a position-independent program,
  // addr2line expects offsets from the program's start.
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(__executable_start);
  uintptr_t code = reinterpret_cast<uintptr_t>(return_address) - 1;
  if (header->e_type == ET_DYN) code -= reinterpret_cast<uintptr_t>(__executable_start);
  const std::string address = absl::StrCat("0x", absl::Hex(code));
  // addr2line prints one line for each inlined function at that address, the innermost first. -s
  // omits folders.
  FILE* pipe = popen(
      absl::StrCat("addr2line -i -s -e /proc/", getpid(), "/exe ", address, " 2>/dev/null").c_str(),
      "r");
  std::string place;
  if (pipe != nullptr) {
    char line[512];
    while (std::fgets(line, sizeof(line), pipe) != nullptr) {
      const absl::string_view frame = absl::StripSuffix(line, "\n");
      // Skips lines of the device code header, to name the kernel's own line.
      if (!place.empty() || absl::StartsWith(frame, kDeviceCode)) continue;
      place = std::string(frame.substr(0, frame.find(" (discriminator")));
    }
    pclose(pipe);
  }
  if (place.empty() || absl::StartsWith(place, "?") || absl::EndsWith(place, ":?")) {
    return absl::StrCat("code ", address);
  }
  return place;
}

}  // namespace baton::simt
