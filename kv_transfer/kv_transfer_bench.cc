// Measures pulls of 16 MiB in 64 KiB blocks, with all their work: notes, generations, checksums and
// release. Compares their rate with memcpy, with one contiguous ucp_get and with scattered ones,
// over shared memory and over TCP on loopback. The owner runs on a thread of its own. Rounds of all
// four measurements are interleaved.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <time.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_time.h"
#include "kv_transfer/kv_plane.h"
#include "kv_transfer/kv_publisher.h"
#include "kv_transfer/kv_puller.h"
#include "kv_transfer/transport/ucx_transport.h"

namespace baton {
namespace {

constexpr KvLayout kLayout{
    .layers = 4, .kv_heads = 4, .head_dim = 32, .block_tokens = 16};  // 64 KiB blocks
constexpr int kPulled = 256;
constexpr int kBlocks = 1024;
constexpr int kRounds = 25;
constexpr double kBytes = 16 << 20;

struct Side {
  Side(const std::string& tls, WorkerEpoch epoch, bool reads)
      : transport(CreateUcxTransport({.tls = tls}).value()) {
    KvPlane::Options options;
    options.epoch = epoch;
    options.layout = kLayout;
    options.blocks = kBlocks;
    options.proves_links = reads;
    plane = KvPlane::Create(transport.get(), options).value();
    std::memset(plane->pool(), static_cast<int>(epoch), kBlocks * kLayout.BlockBytes());
    plain = transport->Allocate(16 << 20).value();
    std::memset(plain.data, 1, plain.bytes);
  }
  std::unique_ptr<Transport> transport;
  std::unique_ptr<KvPlane> plane;
  TransportMemory plain;
};

double ThreadCpuNanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e9 * time.tv_sec + time.tv_nsec;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
double Best(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

void Measure(const std::string& tls) {
  Side owner(tls, 1, false), reader(tls, 2, true);
  auto publisher = KvPublisher::Create(owner.plane.get(), {.owner = "owner"});
  auto puller = KvPuller::Create(reader.plane.get(), {});
  owner.plane->SetPeers({{2, "reader", reader.plane->address()}});
  reader.plane->SetPeers({{1, "owner", owner.plane->address()}});

  // The blocks to pull are every fourth block, in random order, so that no reads of neighbouring
  // blocks merge.
  std::vector<BlockId> theirs, ours;
  for (int i = 0; i < kPulled; ++i) {
    theirs.push_back(4 * i + 1);
    ours.push_back(4 * i + 2);
  }
  std::mt19937 random(1);
  std::shuffle(theirs.begin(), theirs.end(), random);
  std::shuffle(ours.begin(), ours.end(), random);
  std::vector<KvTicket> tickets;
  for (int round = 0; round < kRounds; ++round) {
    const KvTicket ticket =
        publisher->Open(theirs, kPulled * kLayout.block_tokens, [](absl::Status) {});
    publisher->Publish(ticket.handover_id, ticket.tokens, kLayout.layers);
    publisher->Complete(ticket.handover_id, "");
    tickets.push_back(ticket);
  }

  std::atomic<bool> stop = false;
  std::thread owner_thread([&] {
    while (!stop) {
      if (!owner.plane->RunOnce(SteadyNow())) owner.transport->Wait(absl::Milliseconds(10));
    }
  });
  const auto turn = [&] {
    if (!reader.plane->RunOnce(SteadyNow())) reader.transport->Wait(absl::Milliseconds(1));
  };
  while (reader.plane->links().empty()) turn();
  std::printf("%s: link %s\n", tls.c_str(), reader.plane->links()[0].link.c_str());

  const PeerId direct = reader.transport->Connect(owner.transport->address()).value();
  std::map<std::string, std::vector<double>> gbps, per_cpu;
  const auto timed = [&](const std::string& what, const std::function<void()>& run) {
    const absl::Time start = SteadyNow();
    const double cpu_start = ThreadCpuNanoseconds();
    run();
    gbps[what].push_back(kBytes / absl::ToDoubleNanoseconds(SteadyNow() - start));
    per_cpu[what].push_back(kBytes / (ThreadCpuNanoseconds() - cpu_start));
  };
  const auto raw = [&](const std::string& what, size_t bytes_each, bool scattered) {
    timed(what, [&] {
      int left = static_cast<int>(kBytes / bytes_each);
      const int reads = left;
      for (int i = 0; i < reads; ++i) {
        const TransportMemory& memory = owner.plain;
        const size_t at = (scattered ? (i * 97) % reads : i) * bytes_each;
        reader.transport->Read({direct, memory.key, at, reader.plain.data + i * bytes_each,
                                bytes_each, [&](absl::Status status) {
                                  BATON_CHECK(status.ok()) << status.ToString();
                                  --left;
                                }});
      }
      while (left > 0) {
        if (!reader.transport->Progress()) reader.transport->Wait(absl::Milliseconds(1));
      }
    });
  };
  std::vector<std::byte> from(16 << 20, std::byte{1});
  for (int round = 0; round < kRounds; ++round) {
    timed("memcpy, 64 KiB scattered", [&] {
      for (int i = 0; i < kPulled; ++i) {
        std::memcpy(reader.plane->pool() + kLayout.BlockOffset(ours[i]), from.data() + i * 65536,
                    65536);
      }
    });
    raw("ucp_get, contiguous", 16 << 20, false);
    raw("ucp_get, 64 KiB scattered", 65536, true);
    timed("pull, 64 KiB blocks", [&] {
      bool done = false;
      puller->Start(tickets[round], 1, ours, [&](PullResult result) {
        BATON_CHECK(result.status.ok()) << result.status.ToString();
        done = true;
      });
      while (!done) turn();
    });
  }
  // On a busy machine, bytes per second of the reader's CPU time vary less than bytes per second of
  // the clock.
  const std::string yardstick = "ucp_get, contiguous";
  std::printf("  %-26s %26s %34s\n", "GB/s", "by the clock: best median",
              "by the reader's CPU: best median");
  for (const auto& [what, values] : gbps) {
    std::printf("  %-26s %12.2f %6.2f (x%.2f) %20.2f %6.2f (x%.2f)\n", what.c_str(), Best(values),
                Median(values), Best(values) / Best(gbps[yardstick]), Best(per_cpu[what]),
                Median(per_cpu[what]), Median(per_cpu[what]) / Median(per_cpu[yardstick]));
  }
  puller.reset();
  reader.transport->Disconnect(direct);
  reader.plane.reset();
  stop = true;
  owner.transport->Wake();
  owner_thread.join();
}

}  // namespace
}  // namespace baton

int main() {
  baton::SetLogLevel(baton::Severity::kWarning);
  baton::Measure("shm");
  baton::Measure("tcp");
}
