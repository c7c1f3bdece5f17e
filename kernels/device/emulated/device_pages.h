#pragma once

#include <cstddef>

namespace baton {

// Explains crashes in which the host touched emulated device memory. While this object lives, a
// fault in its pages prints an explanation with the address; the fault then goes to the previous
// signal handler. The first object installs the signal handler, which is never removed. At most 256
// objects are registered at a time; faults in the pages of further objects are not explained.
class DevicePages {
 public:
  DevicePages(const std::byte* begin, size_t bytes);
  ~DevicePages();
  DevicePages(const DevicePages&) = delete;
  DevicePages& operator=(const DevicePages&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace baton
