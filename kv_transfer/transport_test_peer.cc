// Runs a device transport in a separate process, for RemoteTransport. Usage: transport_test_peer
// TLS emulated|gpu SEED.

#include <cstdlib>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "kernels/device/cuda/cuda_runtime.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kv_transfer/device/device_transport.h"
#include "kv_transfer/testing/remote_transport.h"
#include "kv_transfer/transport/ucx_transport.h"

int main(int argc, char** argv) {
  using namespace baton;
  BATON_CHECK(argc == 4) << "transport_test_peer TLS emulated|gpu SEED";
  const std::unique_ptr<DeviceRuntime> runtime =
      std::string(argv[2]) == "gpu"
          ? CreateCudaRuntime(0).value()
          : CreateEmulatedRuntime(
                {.seed = std::strtoull(argv[3], nullptr, 10), .memory_bytes = 64 << 20})
                .value();
  const auto stream = runtime->CreateStream().value();
  const auto transport =
      CreateDeviceTransport(CreateUcxTransport({.tls = argv[1]}).value(), runtime.get()).value();
  ServeTransport(transport.get(), [&](const TransportMemory& memory, const std::string& content) {
    BATON_CHECK(runtime->Copy(memory.data, content.data(), content.size(), *stream).ok());
    BATON_CHECK(runtime->Synchronize(*stream).ok());
  });
}
