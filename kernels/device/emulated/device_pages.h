#pragma once

#include <cstddef>

namespace baton {

// Makes a crash tell that the host touched emulated device memory: as long as this lives, a fault
// in these pages prints so, with the address, before it takes its usual way. The signal handler is
// installed with the first of them and stays. At most 256 at a time; further ones crash untold.
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
