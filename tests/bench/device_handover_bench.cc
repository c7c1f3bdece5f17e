// Moves KV from one process's pool to another's on the same device: as a complete hand-over, and as
// a plain copy within one process.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/hex_bytes.h"
#include "common/base/inbox.h"
#include "kv_transfer/device/device_transport.h"
#include "kv_transfer/kv_plane.h"
#include "kv_transfer/kv_publisher.h"
#include "kv_transfer/kv_puller.h"
#include "kv_transfer/transport/ucx_transport.h"
#include "tests/bench/device_bench.h"

namespace baton {
namespace {

constexpr WorkerEpoch kOwner = 1, kReader = 2;

// Returns the KV layout of an 8B model, with blocks of 8 MiB, or of a small model.
KvLayout LayoutOf(bool tiny) {
  return tiny ? KvLayout{2, 2, 32, 16, DType::kBF16} : KvLayout{32, 8, 128, 64, DType::kBF16};
}
int BlocksOf(bool tiny) { return tiny ? 4 : 128; }

// One worker's side of the KV plane. Its pool is on the device.
struct Side {
  Side(DeviceBench& bench, WorkerEpoch epoch) {
    auto host = CreateUcxTransport({});
    DeviceBench::Check(host.status(), "CreateUcxTransport");
    auto on_device = CreateDeviceTransport(*std::move(host), &bench.runtime());
    DeviceBench::Check(on_device.status(), "CreateDeviceTransport");
    transport = *std::move(on_device);
    KvPlane::Options options;
    options.epoch = epoch;
    options.numerics_id = "bench";
    options.layout = LayoutOf(bench.tiny());
    options.blocks = BlocksOf(bench.tiny());
    options.proves_links = epoch == kReader;
    options.device = &bench.runtime();
    options.checksum_kernel = bench.device().kernels.kv_checksum;
    auto made = KvPlane::Create(transport.get(), options);
    DeviceBench::Check(made.status(), "KvPlane::Create");
    plane = *std::move(made);
    blocks.resize(options.blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
  }
  void Turn(absl::Duration wait) {
    if (!plane->RunOnce(absl::Now())) plane->Wait(wait);
  }

  std::unique_ptr<Transport> transport;
  std::unique_ptr<KvPlane> plane;
  std::vector<BlockId> blocks;
};

// A child process that runs this program again and owns a KV pool. This process writes to the
// child's standard input and reads its standard output.
class OwnerProcess {
 public:
  explicit OwnerProcess(bool emulated) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) std::exit(1);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      dup2(to[0], 0);
      dup2(from[1], 1);
      for (int fd = 3; fd < 1024; ++fd) close(fd);
      execl("/proc/self/exe", "device_bench", emulated ? "--device=emulated" : "--device=cuda",
            "--handover-owner", nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
  }
  ~OwnerProcess() {
    std::fclose(to_);  // The owner process ends when its input ends.
    std::fclose(from_);
    waitpid(pid_, nullptr, 0);
  }

  void Say(const std::string& line) {
    std::fprintf(to_, "%s\n", line.c_str());
    std::fflush(to_);
  }
  // Reads a line and returns its words after the first. Ends the program if the first word is not
  // `what`.
  std::istringstream Hear(const std::string& what) {
    std::string line;
    for (int c = std::fgetc(from_); c != '\n' && c != EOF; c = std::fgetc(from_)) {
      line.push_back(static_cast<char>(c));
    }
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first != what) {
      DeviceBench::Check(absl::InternalError(absl::StrCat("it said '", line, "'")),
                         "the owner of the pool");
    }
    return words;
  }

 private:
  pid_t pid_;
  FILE *to_ = nullptr, *from_ = nullptr;
};

}  // namespace

int RunHandoverOwner(bool emulated) {
  BenchFigures none("", emulated);
  DeviceBench bench({.emulated = emulated}, &none);
  Side side(bench, kOwner);
  auto publisher = KvPublisher::Create(side.plane.get(), {.owner = "owner"});
  const KvLayout layout = LayoutOf(emulated);
  const size_t bytes = side.blocks.size() * layout.BlockBytes();
  DeviceBench::Check(
      bench.runtime().Copy(side.plane->pool(), bench.Random(bytes), bytes, bench.stream()), "Copy");
  DeviceBench::Check(bench.runtime().Synchronize(bench.stream()), "Synchronize");
  std::printf("address %s\n", absl::BytesToHexString(side.plane->address()).c_str());
  std::fflush(stdout);
  Inbox<std::string> lines(100);
  std::thread reader([&] {
    std::string line;
    while (std::getline(std::cin, line)) {
      lines.Push(line);
      side.transport->Wake();
    }
    std::_Exit(0);
  });
  const int tokens = static_cast<int>(side.blocks.size()) * layout.block_tokens;
  while (true) {
    for (const std::string& line : lines.TakeAll()) {
      std::istringstream in(line);
      std::string word, hex;
      in >> word >> hex;
      if (word == "peer") {
        side.plane->SetPeers({{kReader, "reader", BytesOfHex(hex)}});
      } else if (word == "open") {
        const KvTicket ticket = publisher->Open(side.blocks, tokens, [](absl::Status) {});
        publisher->Publish(ticket.handover_id, tokens, layout.layers);
        publisher->Complete(ticket.handover_id, "");
        std::printf("ticket %lu %s", ticket.handover_id,
                    absl::BytesToHexString(ticket.secret).c_str());
        for (const uint64_t generation : ticket.generations) std::printf(" %lu", generation);
        std::printf("\n");
        std::fflush(stdout);
      }
    }
    side.Turn(absl::Milliseconds(50));
  }
}

void BenchHandover(DeviceBench& bench) {
  const bool tiny = bench.tiny();
  OwnerProcess owner(tiny);
  Side side(bench, kReader);
  auto puller = KvPuller::Create(side.plane.get(), {});
  std::string hex;
  owner.Hear("address") >> hex;
  owner.Say(absl::StrCat("peer ", absl::BytesToHexString(side.plane->address())));
  side.plane->SetPeers({{kOwner, "owner", BytesOfHex(hex)}});
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  while (side.plane->links().empty()) {
    if (absl::Now() > limit) {
      DeviceBench::Check(absl::DeadlineExceededError("no link to the owner"), "handover");
    }
    side.Turn(absl::Milliseconds(5));
  }
  const std::string link = side.plane->links()[0].link;

  const KvLayout layout = LayoutOf(tiny);
  const size_t bytes = side.blocks.size() * layout.BlockBytes();
  const auto ticket = [&] {
    owner.Say("open");
    std::istringstream words = owner.Hear("ticket");
    KvTicket ticket;
    std::string secret;
    words >> ticket.handover_id >> secret;
    ticket.secret = BytesOfHex(secret);
    for (uint64_t generation; words >> generation;) ticket.generations.push_back(generation);
    ticket.owner_epoch = kOwner;
    ticket.owner = "owner";
    ticket.layout_fingerprint = layout.Fingerprint();
    ticket.numerics_id = "bench";
    ticket.tokens = static_cast<int>(side.blocks.size()) * layout.block_tokens;
    ticket.blocks = side.blocks;
    return ticket;
  };
  const auto pull = [&]() -> absl::Status {
    const KvTicket now = ticket();
    absl::Status status;
    bool done = false;
    puller->Start(now, 1, side.blocks, [&](PullResult result) {
      status = result.status;
      done = true;
    });
    while (!done) side.Turn(absl::Milliseconds(1));
    return status;
  };
  std::byte *const from = bench.Random(bytes), *const to = bench.Random(bytes);
  const auto times = bench.Rounds(
      {bench.OnStream([&] { return bench.runtime().Copy(to, from, bytes, bench.stream()); }),
       {pull, [] { return absl::OkStatus(); }}});
  bench.figures().Add(RateFigure("plain copy of a hand-over's KV", bytes, times[0]));
  auto handover = RateFigure(absl::StrCat("hand-over by ", link), bytes, times[1]);
  // The target rate of a hand-over. An 8B model produces KV at about 6 GB/s during prefill. At 20
  // GB/s, the hand-over keeps up, and only the last layer arrives after prefill has ended.
  constexpr double kWantedGigabytes = 20;
  handover.ratio = handover.median / kWantedGigabytes;
  handover.of = absl::StrCat(kWantedGigabytes, " GB/s");
  handover.target = 1;
  bench.figures().Add(handover);
  auto share = RateFigure(absl::StrCat("hand-over by ", link, ", as a copy"), bytes, times[1]);
  share.ratio = times[0].median / times[1].median;
  share.of = "the plain copy";
  bench.figures().Add(share);
}

}  // namespace baton
