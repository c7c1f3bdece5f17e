// A prefill worker's KV side as a process of its own, for tests that kill and stop it. Usage:
// kv_test_owner TLS. Speaks lines of words on standard input and output:
//   (start)             -> "address HEX"
//   peer EPOCH HEX      names the reader
//   open BLOCKS         -> "ticket ID SECRET-HEX GENERATION..."; blocks 0 .. BLOCKS-1
//   publish ID TOKENS LAYERS
//   complete ID
//   (a hand-over ends)  -> "ended ID STATUS"

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "common/base/inbox.h"
#include "kv_transfer/kv_test_world.h"
#include "kv_transfer/ucx_transport.h"

int main(int argc, char** argv) {
  using namespace baton;
  auto transport = CreateUcxTransport({.tls = argc > 1 ? argv[1] : "auto"}).value();
  KvPlane::Options options;
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
        plane->SetPeers({{id, "reader", absl::HexStringToBytes(hex)}});
      } else if (word == "open") {
        std::vector<BlockId> blocks;
        for (BlockId block = 0; block < static_cast<BlockId>(id); ++block) {
          blocks.push_back(block);
          for (int layer = 0; layer < kProcessLayout.layers; ++layer) {
            FillSlice(plane.get(), block, layer, 1000 + block);
          }
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
      } else if (word == "complete") {
        publisher->Complete(id, "first token");
      }
    }
    if (!plane->RunOnce(absl::Now())) transport->Wait(absl::Milliseconds(50));
  }
}
