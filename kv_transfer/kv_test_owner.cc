// Runs the KV plane and the publisher of a prefill worker as a separate process, for tests that
// kill and stop it. Usage: kv_test_owner TLS [DEVICE]. If DEVICE, the number of an emulated device,
// is given, the pool lies there. The process reads commands from standard input and writes answers
// to standard output, one per line:
//   (start)             -> "address HEX"
//   peer EPOCH HEX      names the reader
//   open BLOCKS         -> "ticket ID SECRET-HEX GENERATION..."; blocks 0 .. BLOCKS-1
//   publish ID TOKENS LAYERS
//   complete ID
//   flip BLOCK LAYER    -> "changed": flips one bit of a slice whose checksum has been taken
//   reuse BLOCK         -> "changed": new generation and bytes, as if the block had a new holder
//   (a hand-over ends)  -> "ended ID STATUS"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "common/base/hex_bytes.h"
#include "common/base/inbox.h"
#include "kernels/cuda/kernels/kernels.h"
#include "kernels/device/emulated/emulated_runtime.h"
#include "kv_transfer/device/device_transport.h"
#include "kv_transfer/kv_test_world.h"
#include "kv_transfer/transport/ucx_transport.h"

int main(int argc, char** argv) {
  using namespace baton;
  auto transport = CreateUcxTransport({.tls = argc > 1 ? argv[1] : "auto"}).value();
  KvPlane::Options options;
  std::unique_ptr<DeviceRuntime> device;
  if (argc > 2) {
    device =
        CreateEmulatedRuntime({.seed = 2, .memory_bytes = 64 << 20, .device = std::atoi(argv[2])})
            .value();
    transport = CreateDeviceTransport(std::move(transport), device.get()).value();
    options.device = device.get();
    options.checksum_kernel = EmulatedKernels().kv_checksum;
  }
  options.epoch = kProcessOwnerEpoch;
  options.numerics_id = "test";
  options.layout = kProcessLayout;
  options.blocks = kProcessBlocks;
  auto plane = KvPlane::Create(transport.get(), options).value();
  auto publisher = KvPublisher::Create(plane.get(), {.owner = "owner"});
  std::printf("address %s\n", absl::BytesToHexString(plane->address()).c_str());
  std::fflush(stdout);

  Inbox<std::string> lines(1000);
  std::thread reader([&] {
    std::string line;
    while (std::getline(std::cin, line)) {
      lines.Push(line);
      transport->Wake();
    }
    std::_Exit(0);
  });
  while (true) {
    for (const std::string& line : lines.TakeAll()) {
      std::istringstream in(line);
      std::string word;
      uint64_t id = 0;
      in >> word >> id;
      if (word == "peer") {
        std::string hex;
        in >> hex;
        plane->SetPeers({{id, "reader", BytesOfHex(hex)}});
      } else if (word == "open") {
        std::vector<BlockId> blocks;
        for (BlockId block = 0; block < static_cast<BlockId>(id); ++block) {
          blocks.push_back(block);
          FillBlock(plane.get(), block, 1000 + block);
        }
        auto handover = std::make_shared<uint64_t>(0);
        const KvTicket ticket =
            publisher->Open(blocks, static_cast<int>(id) * kProcessLayout.block_tokens,
                            [handover](absl::Status status) {
                              std::printf("ended %lu %s\n", *handover, status.ToString().c_str());
                              std::fflush(stdout);
                            });
        *handover = ticket.handover_id;
        std::printf("ticket %lu %s", ticket.handover_id,
                    absl::BytesToHexString(ticket.secret).c_str());
        for (const uint64_t generation : ticket.generations) std::printf(" %lu", generation);
        std::printf("\n");
        std::fflush(stdout);
      } else if (word == "publish") {
        int tokens = 0, layers = 0;
        in >> tokens >> layers;
        publisher->Publish(id, tokens, layers);
      } else if (word == "flip" || word == "reuse") {
        const BlockId block = static_cast<BlockId>(id);
        plane->checksums()->Finish();
        if (word == "reuse") {
          plane->generations()[block].fetch_add(2);
          FillBlock(plane.get(), block, 5000);
        } else {
          int layer = 0;
          in >> layer;
          std::byte* const at = plane->pool() + kProcessLayout.LayerOffset(block, layer) + 1234;
          std::byte value{};
          CopyTest(*plane, &value, at, 1);
          value ^= std::byte{0x10};
          CopyTest(*plane, at, &value, 1);
        }
        std::printf("changed\n");
        std::fflush(stdout);
      } else if (word == "complete") {
        publisher->Complete(id, "first token");
      }
    }
    if (!plane->RunOnce(absl::Now())) plane->Wait(absl::Milliseconds(50));
  }
}
