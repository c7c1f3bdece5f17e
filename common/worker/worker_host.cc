#include "common/worker/worker_host.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <arpa/inet.h>
#include <unistd.h>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/byte_size.h"
#include "common/base/host_port.h"
#include "common/base/listen_check.h"
#include "common/base/log.h"
#include "common/base/program.h"
#include "common/base/random.h"
#include "common/base/steady_time.h"
#include "common/metrics/metrics_flag.h"
#include "common/metrics/process_metrics.h"
#include "common/model/source/model_name.h"
#include "common/rpc/dial.h"
#include "common/rpc/limits.h"
#include "common/worker/auto_flag.h"
#include "common/worker/cache_proto.h"
#include "common/worker/load_teller.h"
#include "common/worker/prompt_order.h"
#include "common/worker/worker_metrics.h"
#include "common/worker/worker_proto.h"
#include "kv_transfer/device/device_transport.h"
#include "kv_transfer/transport/ucx_transport.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "HOST:PORT to serve routers on; port 0 takes any free port");
ABSL_FLAG(std::string, advertise, "",
          "HOST:PORT or HOST at which routers reach this worker; default: the value of --listen");
ABSL_FLAG(std::string, routers, "127.0.0.1:50051",
          "HOST:PORT of each router to attach to, separated by commas");
ABSL_FLAG(std::string, attach_token, "",
          "token that all routers and workers of the cluster share; default: $BATON_ATTACH_TOKEN, "
          "or none");
ABSL_FLAG(std::string, model, "",
          "Hugging Face folder with config.json and *.safetensors, or GGUF file (required)");
ABSL_FLAG(std::string, model_name, "",
          "name under which the model is served; default: the folder's name");
ABSL_FLAG(std::string, backend, "cpu",
          "compute backend: cpu, or cuda (the NVIDIA GPU that --gpu names)");
ABSL_FLAG(
    int32_t, gpu, 0,
    "number of the GPU for --backend=cuda, from 0, in CUDA's order; unlike CUDA_VISIBLE_DEVICES, "
    "this flag leaves the other GPUs visible, so that links to workers on them can be told apart");
ABSL_FLAG(int32_t, threads, 0,
          "threads of the cpu backend, 1 to 1024; 0: one for each core that this process may use "
          "(CPU affinity and the container's quota count)");
ABSL_FLAG(std::string, numerics, "auto",
          "order of sums in the cpu backend: auto (the fastest on this machine), portable (the "
          "same on every x86-64), f32, amx, avx512-bf16 or q8; workers that hand over KV to one "
          "another need the same order");
ABSL_FLAG(bool, random_weights, false,
          "makes the weights from --weights-seed instead of reading them; --model then needs only "
          "config.json. Workers with the same config.json and seed have the same weights");
ABSL_FLAG(uint64_t, weights_seed, 1, "seed of the weights that --random-weights makes");
ABSL_FLAG(baton::OrAuto<baton::ByteSize>, kv_bytes, baton::OrAuto<baton::ByteSize>(),
          "size of the KV pool, such as 4Gi or 4GB; auto: on a GPU all memory that "
          "--gpu-memory-utilization leaves, otherwise as much as --memory-share allows, but at "
          "most 8Gi, at most the largest of 1Gi, four times the weights and one whole context, and "
          "at most what the max number of sequences can fill");
ABSL_FLAG(double, memory_share, baton::HostMemoryPlan::kDefaultShare,
          "max share of the host memory beside the weights that this worker takes for KV pool, "
          "activations and everything else, above 0 up to 1; counts only with --kv-bytes=auto and "
          "without a GPU. For N workers on one machine take 0.8 / N");
ABSL_FLAG(
    baton::OrAuto<baton::ByteSize>, usable_memory, baton::OrAuto<baton::ByteSize>(),
    "host memory that this worker and the other workers of its model may use, weights included, "
    "such as 12Gi; auto: what is free now on this machine and in this process's control groups");
ABSL_FLAG(double, gpu_memory_utilization, 0.9,
          "max share of the GPU's memory that this worker takes for weights, KV pool and "
          "everything else, above 0 up to 1; workers on one GPU divide it: 0.45 each for two");
ABSL_FLAG(baton::OrAuto<int32_t>, block_tokens, baton::OrAuto<int32_t>(),
          "tokens per KV block, 1 to 1024, the same for all workers that hand over KV to one "
          "another; auto: 64 on a GPU, otherwise 16");
ABSL_FLAG(std::string, kv_type, "auto",
          "number type of the KV cache: auto (the type of the weights), f32, f16 or bf16");
ABSL_FLAG(int32_t, context, 0,
          "max tokens of a sequence, prompt and answer together; 0: the model's limit, or what the "
          "KV pool holds if that is less");
ABSL_FLAG(bool, prefix_cache, true,
          "keeps the KV of prompts and answers while blocks are free, for later prompts that begin "
          "with the same tokens; --no-prefix-cache gives the same tokens, but more slowly");
ABSL_FLAG(bool, cuda_graphs, true,
          "runs decode steps on a GPU as recorded CUDA graphs; --no-cuda-graphs gives the same "
          "tokens, but more slowly");
ABSL_FLAG(
    std::string, kv_transports, "auto",
    "transports that may carry KV: auto, shm, tcp, or a list of UCX transports as in UCX_TLS");
ABSL_FLAG(std::string, kv_net_device, "lo",
          "network devices for KV, separated by commas; with lo, KV stays on this machine. For "
          "RDMA name the adapter beside the interface: eth0,mlx5_0:1");
ABSL_FLAG(std::string, kv_ports, "",
          "range of TCP ports for KV, FIRST-LAST, for use with a firewall; a worker takes two "
          "ports on each network interface, and workers on one machine may share the range; "
          "default: any free ports");
ABSL_FLAG(std::string, kv_device_path, "auto",
          "way to read KV out of the memory of another worker's GPU: ipc (CUDA IPC, on one "
          "machine), direct (GPUDirect RDMA by UCX), bounced (through host memory), or auto (the "
          "first of these that works here)");
ABSL_FLAG(absl::Duration, report_interval, absl::Milliseconds(250),
          "time between two load reports to the routers, 10ms or more; a router gives no new work "
          "to a worker that stays silent (see the router's --report-limit)");
ABSL_FLAG(absl::Duration, hang_limit, absl::Seconds(30),
          "max time that a thread may make no progress, 200ms or more; after it the worker counts "
          "as hung: it sends no load reports, and its health is NOT_SERVING. Must be longer than a "
          "decode step, or one layer of a prompt's chunk, can take");
ABSL_FLAG(absl::Duration, drain_grace, absl::Seconds(30),
          "max time for running work to finish after SIGTERM");

namespace baton {
namespace {

constexpr absl::Duration kLastJobs = absl::Seconds(5);
constexpr absl::Duration kLastWrites = absl::Seconds(2);
constexpr char kReady[] = "ready";
// Max time between two checks of the pulses, which show if the worker's threads still make
// progress. Routers learn within this time that a worker has recovered.
constexpr absl::Duration kLongestSilence = absl::Milliseconds(250);
constexpr absl::Duration kShortestReport = absl::Milliseconds(10);
// Min value of --hang-limit: four times the longest wait of an idle loop.
constexpr absl::Duration kShortestHang = absl::Milliseconds(200);

void RefuseUnlessAtLeast(absl::string_view flag, absl::Duration value, absl::Duration min) {
  if (value >= min) return;
  RefuseToStart(absl::StrCat("--", flag, " is ", absl::FormatDuration(value), "; it takes ",
                             absl::FormatDuration(min), " or more"));
}

// Ends the process as if it had been killed. Routers see broken streams and start the requests anew
// on another worker. No error is sent first, and the device is not asked to stop, because it may
// never answer again.
void EndWithDevice(const absl::Status& failure) {
  Log(Severity::kError, "device_failed", {{"error", failure.message()}});
  _exit(kDeviceFailedStatus);
}

void RefuseUnlessOk(const absl::Status& status) {
  if (!status.ok()) RefuseToStart(status.message());
}

std::optional<uint64_t> BytesOf(const OrAuto<ByteSize>& flag) {
  if (!flag.value) return std::nullopt;
  return flag.value->bytes;
}

void WarnOfShorterContext(const ModelHost& host) {
  const int wanted = host.model->config().context;
  if (host.options.context > 0 || host.context >= wanted) return;
  const uint64_t bytes = host.layout.BlocksFor(wanted) * uint64_t{host.layout.BlockBytes()};
  constexpr uint64_t kMib = 1 << 20;
  Log(Severity::kWarning, "context_shortened",
      {{"model_tokens", wanted},
       {"served_tokens", host.context},
       {"why", "the KV pool holds no more tokens"},
       {"all_would_need",
        absl::StrCat("--kv-bytes=", ByteSizeText((bytes + kMib - 1) / kMib * kMib))},
       {"to_silence", absl::StrCat("--context=", host.context)}});
}

// Returns the address at which routers reach this worker. `listen` is the address it listens on,
// with the actual port.
std::string AdvertisedAddress(const std::string& listen) {
  const std::string advertise = absl::GetFlag(FLAGS_advertise);
  if (advertise.empty()) return listen;
  if (IsHostPort(advertise) && PortOf(advertise) != 0) return advertise;
  // Kubernetes writes a pod's IPv6 address without brackets. They are added here.
  in6_addr ignored;
  const bool bare = inet_pton(AF_INET6, advertise.c_str(), &ignored) == 1;
  const std::string address =
      absl::StrCat(bare ? absl::StrCat("[", advertise, "]") : advertise, ":", PortOf(listen));
  if (!IsHostPort(address)) {
    RefuseToStart(absl::StrCat("--advertise is '", advertise, "'; it takes HOST or HOST:PORT"));
  }
  return address;
}

void CheckListenFlag() {
  const std::string listen = absl::GetFlag(FLAGS_listen);
  if (const absl::Status status = CheckListen(listen); !status.ok()) {
    RefuseToStart(absl::StrCat("--listen: ", status.message()));
  }
  AdvertisedAddress(listen);
}

// Logs the default address if --routers was not given. So the user of a worker that was started by
// hand sees which router it waits for.
void TellRoutersNotGiven() {
  if (absl::c_linear_search(GivenFlags(), "routers")) return;
  Log(Severity::kInfo, "routers_not_given",
      {{"routers", absl::GetFlag(FLAGS_routers)},
       {"hint",
        "this worker attaches to a router at that address; --routers HOST:PORT names another "
        "one"}});
}

BackendFactory ChosenBackend(const std::vector<BackendFactory>& backends) {
  absl::StatusOr<BackendFactory> backend = FindBackend(backends, absl::GetFlag(FLAGS_backend));
  RefuseUnlessOk(backend.status());
  return *std::move(backend);
}

}  // namespace

bool WorkerHost::UsesDevice(const std::vector<BackendFactory>& backends) {
  return ChosenBackend(backends).on_device();
}

int WorkerHost::StepTokens(int tokens) {
  const std::optional<int32_t> block = absl::GetFlag(FLAGS_block_tokens).value;
  return block ? PromptOrder::StepTokens(tokens, std::clamp(*block, 1, 1024)) : tokens;
}

std::unique_ptr<WorkerHost> WorkerHost::Open(v1::WorkerRole role,
                                             const std::vector<BackendFactory>& backends,
                                             const StepSize& max, int max_sequences,
                                             int chunk_tokens) {
  if (!IsHostPort(absl::GetFlag(FLAGS_listen))) {
    RefuseToStart(
        absl::StrCat("--listen is '", absl::GetFlag(FLAGS_listen), "'; it takes HOST:PORT"));
  }
  const std::string advertise = absl::GetFlag(FLAGS_advertise);
  if (IsAnyAddress(advertise.empty() ? absl::GetFlag(FLAGS_listen) : advertise)) {
    RefuseToStart(absl::StrCat(advertise.empty() ? "--listen is '" : "--advertise is '",
                               advertise.empty() ? absl::GetFlag(FLAGS_listen) : advertise,
                               "', which means every address of this machine; --advertise has to "
                               "name one at which routers reach this worker"));
  }
  RefuseUnlessOk(ParseRouters(absl::GetFlag(FLAGS_routers)).status());
  RefuseUnlessOk(AttachToken(absl::GetFlag(FLAGS_attach_token)).status());
  RefuseUnlessAtLeast("drain-grace", absl::GetFlag(FLAGS_drain_grace), absl::ZeroDuration());
  RefuseUnlessAtLeast("report-interval", absl::GetFlag(FLAGS_report_interval), kShortestReport);
  RefuseUnlessAtLeast("hang-limit", absl::GetFlag(FLAGS_hang_limit), kShortestHang);
  const BackendFactory backend = ChosenBackend(backends);
  const absl::StatusOr<DevicePath> path = DevicePathFromName(absl::GetFlag(FLAGS_kv_device_path));
  if (!path.ok()) RefuseToStart(absl::StrCat("--kv-device-path: ", path.status().message()));
  CheckListenFlag();
  const LeaveOnStop leave;  // loading weights can take long, and must not delay a stop
  LoadTeller progress;
  const auto refuse_unless_ok = [&progress](const absl::Status& status) {
    if (status.ok()) return;
    progress.Stop();
    RefuseToStart(status.message());
  };
  auto host = std::unique_ptr<WorkerHost>(new WorkerHost(role));
  host->epoch_ = RandomU64();
  host->metrics_server_ = ListenForMetrics();
  std::optional<uint64_t> seed;
  if (absl::GetFlag(FLAGS_random_weights)) seed = absl::GetFlag(FLAGS_weights_seed);
  // If there is a device, it must be opened before the transport, so that UCX finds it. Otherwise
  // the transport is opened before the weights are read, so that its errors show early.
  const auto open_transport = [&](bool device_memory) {
    absl::StatusOr<std::unique_ptr<Transport>> transport =
        CreateUcxTransport({.tls = absl::GetFlag(FLAGS_kv_transports),
                            .net_devices = absl::GetFlag(FLAGS_kv_net_device),
                            .ports = absl::GetFlag(FLAGS_kv_ports),
                            .device_memory = device_memory});
    refuse_unless_ok(transport.status());
    host->transport_ = *std::move(transport);
  };
  if (!backend.on_device()) open_transport(false);
  absl::StatusOr<ModelHost> model = ModelHost::Open(
      {.backend = backend,
       .model = absl::GetFlag(FLAGS_model),
       .gpu = absl::GetFlag(FLAGS_gpu),
       .threads = absl::GetFlag(FLAGS_threads),
       .numerics = absl::GetFlag(FLAGS_numerics),
       .random_weights = seed,
       .kv_bytes = BytesOf(absl::GetFlag(FLAGS_kv_bytes)),
       .memory_share = absl::GetFlag(FLAGS_memory_share),
       .max_sequences = max_sequences,
       .usable_bytes = BytesOf(absl::GetFlag(FLAGS_usable_memory)),
       .block_tokens = absl::GetFlag(FLAGS_block_tokens).value,
       .kv_type = absl::GetFlag(FLAGS_kv_type),
       .context = absl::GetFlag(FLAGS_context),
       .cuda_graphs = absl::GetFlag(FLAGS_cuda_graphs),
       .max = max,
       .device_share = absl::GetFlag(FLAGS_gpu_memory_utilization),
       .batch_flag = role == v1::WORKER_ROLE_DECODE ? "--max-batch" : "",
       .chunk_tokens = chunk_tokens,
       .on_plan =
           [](const DeviceMemoryPlan& plan) {
             PrintAtStart(plan.Table());
             Log(Severity::kInfo, "memory_plan", plan.LogFields());
           },
       .on_host_plan =
           [](const HostMemoryPlan& plan) {
             Log(Severity::kInfo, "memory_plan", plan.LogFields());
           },
       .on_weights = [&progress](uint64_t done,
                                 uint64_t total) { progress.Set("weights", done, total); },
       .on_loading =
           [] {
             TellRoutersNotGiven();
             Log(Severity::kInfo, "loading_model", {{"folder", absl::GetFlag(FLAGS_model)}});
           },
       .on_device_failure = EndWithDevice});
  refuse_unless_ok(model.status());
  host->model_ = *std::move(model);
  const OpenedDevice& device = host->model_.device;
  if (host->model_.on_device()) {
    open_transport(true);
    absl::StatusOr<std::unique_ptr<Transport>> transport =
        CreateDeviceTransport(std::move(host->transport_), device.runtime.get(), *path);
    refuse_unless_ok(transport.status());
    host->transport_ = *std::move(transport);
  }
  absl::StatusOr<std::unique_ptr<KvPlane>> plane = KvPlane::Create(
      host->transport_.get(), {.epoch = host->epoch_,
                               .numerics_id = host->model_.numerics_id,
                               .layout = host->model_.layout,
                               .blocks = host->model_.blocks,
                               .proves_links = role == v1::WORKER_ROLE_DECODE,
                               .device = device.runtime.get(),
                               .checksum_kernel = device.kernels.kv_checksum,
                               .page_in = true,
                               .on_page_in = [&progress](uint64_t done, uint64_t total) {
                                 progress.Set("kv_pool", done, total);
                               }});
  refuse_unless_ok(plane.status());
  host->plane_ = *std::move(plane);
  refuse_unless_ok(host->model_.PageInWeights());
  progress.Stop();
  WarnOfShorterContext(host->model_);
  Log(Severity::kInfo, "model",
      {{"folder", absl::GetFlag(FLAGS_model)}, {"uses", host->model_.Describe()}});
  Log(Severity::kInfo, "kv_plane", {{"transport", host->transport_->name()}});
  return host;
}

PrefixCacheSettings WorkerHost::prefix_cache() const {
  return {.enabled = absl::GetFlag(FLAGS_prefix_cache),
          .secret = attach_token(),
          .model_fingerprint = model_.model->fingerprint(),
          .hash_key = RandomU64()};
}

std::string WorkerHost::attach_token() {
  return AttachToken(absl::GetFlag(FLAGS_attach_token)).value();
}

void WorkerHost::Listen(grpc::Service* service, absl::string_view service_name) {
  identity_ = std::make_unique<WorkerIdentityService>(attach_token(), epoch_);
  absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start(
      {.listen = absl::GetFlag(FLAGS_listen),
       .services = {service, identity_.get()},
       .names = {std::string(service_name), v1::WorkerIdentity::service_full_name()}});
  if (!server.ok()) RefuseToStart(absl::StrCat("--listen: ", server.status().message()));
  server_ = *std::move(server);
  service_name_ = std::string(service_name);
  listen_address_ = server_->address();
  address_ = AdvertisedAddress(listen_address_);
}

void WorkerHost::OnKvThread(std::function<void()> work) {
  kv_work_.PushAlways(std::move(work));
  if (kv_loop_ != nullptr) kv_loop_->Wake();
}

void WorkerHost::StartKvThread() {
  Loop::Options options = {.name = "kv", .pulse = &kv_pulse_};
  options.wait = [this](absl::Duration timeout) { plane_->Wait(timeout); };
  options.wake = [this] { transport_->Wake(); };
  kv_loop_ = std::make_unique<Loop>(options, [this](absl::Time now) {
    bool busy = false;
    for (const std::function<void()>& work : kv_work_.TakeAll()) {
      work();
      busy = true;
    }
    busy |= plane_->RunOnce(now);
    NoteLinks();
    return busy;
  });
}

void WorkerHost::NoteLinks() {
  std::vector<ProvenLink> links = plane_->links();
  const bool linked = plane_->has_link_or_no_peers();
  const auto same = [](const ProvenLink& a, const ProvenLink& b) {
    return a.epoch == b.epoch && a.link == b.link;
  };
  MutexLock lock(&mutex_);
  linked_ = linked;
  TellReady();
  if (std::equal(links.begin(), links.end(), links_.begin(), links_.end(), same)) return;
  links_ = std::move(links);
  if (attach_ != nullptr) attach_->ReportNow();
}

void WorkerHost::TellReady() {
  // While the KV thread has not yet taken the latest list of peers, a worker does not become ready.
  // A worker that is ready stays ready.
  // The same holds while a router refuses it. In an upgrade to another protocol version the old
  // routers refuse new workers. They need the old workers until they end, and a rollout would stop
  // the old workers as soon as new ones are ready.
  const bool settled = ready_ || (peers_told_ == peers_set_ && standing_.undisputed);
  const bool ready =
      !hangs_ && !draining_ && linked_ && !none_fits_ && settled && standing_.attached > 0;
  if (ready == ready_) return;
  ready_ = ready;
  server_->SetServing(kReady, ready);
}

void WorkerHost::WatchPulses(absl::Time now) {
  const std::vector<std::string> silent = pulses_->Silent(now);
  MutexLock lock(&mutex_);
  if (hangs_ == !silent.empty()) return;
  hangs_ = !silent.empty();
  TellReady();
  server_->SetServing(service_name_, !hangs_ && !draining_);
  server_->SetServing("", !hangs_ && !draining_);
  if (hangs_) {
    Log(Severity::kError, "hangs",
        {{"threads", absl::StrJoin(silent, ",")},
         {"limit", absl::FormatDuration(absl::GetFlag(FLAGS_hang_limit))}});
  } else {
    Log(Severity::kInfo, "hangs_no_more");
    attach_->ReportNow();
  }
}

std::optional<v1::LoadReport> WorkerHost::Report() {
  {
    MutexLock lock(&mutex_);
    if (hangs_) return std::nullopt;
  }
  v1::LoadReport report = LoadToProto(core_->Load());
  MutexLock lock(&mutex_);
  report.set_draining(draining_);
  for (const ProvenLink& link : links_) {
    v1::PeerLink* proto = report.add_links();
    proto->set_epoch(link.epoch);
    proto->set_link(link.link);
    proto->set_bytes_per_us(link.bytes_per_us);
  }
  return report;
}

void WorkerHost::Attach(int max_batch) {
  const std::string name = absl::GetFlag(FLAGS_model_name);
  v1::Registration registration;
  registration.set_role(role_);
  registration.set_address(address_);
  registration.set_epoch(epoch_);
  registration.set_protocol_version(kProtocolVersion);
  registration.set_model(name.empty() ? ModelNameAt(absl::GetFlag(FLAGS_model)) : name);
  registration.set_model_fingerprint(model_.model->fingerprint());
  registration.set_layout_fingerprint(model_.layout.Fingerprint());
  registration.set_numerics_id(model_.numerics_id);
  registration.set_kv_address(plane_->address());
  registration.set_total_blocks(static_cast<uint32_t>(model_.blocks));
  registration.set_block_tokens(static_cast<uint32_t>(model_.layout.block_tokens));
  registration.set_context_tokens(static_cast<uint32_t>(model_.context));
  registration.set_max_batch(static_cast<uint32_t>(max_batch));
  registration.set_version(std::string(kVersion));
  registration.set_prefix_cache(absl::GetFlag(FLAGS_prefix_cache));
  AddProcessMetrics(role_ == v1::WORKER_ROLE_PREFILL ? "baton-prefill" : "baton-decode", &metrics_);
  const auto links = [this] {
    MutexLock lock(&mutex_);
    return links_;
  };
  AddWorkerMetrics(registration, core_, links, &metrics_);
  AttachClient::Options options;
  options.routers = *ParseRouters(absl::GetFlag(FLAGS_routers));
  options.registration = std::move(registration);
  options.token = attach_token();
  options.report_interval = absl::GetFlag(FLAGS_report_interval);
  options.new_cache_reader = [log = core_->name_log()]() -> AttachClient::CacheReader {
    return [log,
            reader = NameLog::Cursor()]() mutable -> std::optional<AttachClient::CacheMessage> {
      const std::optional<NameChanges> changes = log->Next(&reader, kMaxCacheChanges);
      if (!changes) return std::nullopt;
      return AttachClient::CacheMessage{CacheChangesToProto(*changes, SteadyNow()), changes->more};
    };
  };
  options.on_standing = [this](const AttachClient::Standing& standing) {
    MutexLock lock(&mutex_);
    standing_ = standing;
    TellReady();
  };
  server_->SetServing(service_name_, true);
  server_->SetServing(kReady, false);
  auto attach = std::make_unique<AttachClient>(
      std::move(options), [this] { return Report(); },
      [this](const v1::Peers& protos) {
        std::vector<KvPeer> peers;
        for (const v1::Peer& peer : protos.peers()) {
          peers.push_back(
              {.epoch = peer.epoch(), .address = peer.address(), .kv_address = peer.kv_address()});
        }
        bool fitted = false;
        {
          MutexLock lock(&mutex_);
          ++peers_told_;
          fitted = !none_fits_;
          none_fits_ = protos.none_fits();
          TellReady();
        }
        if (fitted && protos.none_fits()) {
          Log(Severity::kWarning, "no_partner_fits",
              {{"numerics", model_.numerics_id},
               {"layout", model_.layout.Fingerprint()},
               {"why", "see worker_without_partner in the router's log"}});
        }
        OnKvThread([this, peers = std::move(peers)] {
          plane_->SetPeers(peers);
          MutexLock lock(&mutex_);
          ++peers_set_;
          linked_ = plane_->has_link_or_no_peers();
          TellReady();
        });
      });
  {
    MutexLock lock(&mutex_);
    attach_ = std::move(attach);
  }
  const absl::Duration limit = absl::GetFlag(FLAGS_hang_limit);
  pulses_ = std::make_unique<PulseWatch>(limit);
  pulses_->Add("core", &core_pulse_);
  pulses_->Add("kv", &kv_pulse_);
  watch_loop_ = std::make_unique<Loop>(
      Loop::Options{.name = "watch", .idle = std::min(limit / 8, kLongestSilence)},
      [this](absl::Time now) {
        WatchPulses(now);
        free_memory_.TrimIfDue(now);
        return false;
      });
  ServeMetrics(metrics_server_.get(), &metrics_);
  PrintAtStart(absl::StrCat(
      "listening on ", listen_address_,
      address_ == listen_address_ ? "" : absl::StrCat(" (advertised as ", address_, ")"), "\n"));
  Log(Severity::kInfo, "listening",
      {{"address", listen_address_},
       {"advertised", address_},
       {"routers", absl::GetFlag(FLAGS_routers)}});
}

void WorkerHost::DrainWhenStopped() {
  WaitForStop();
  const absl::Duration grace = absl::GetFlag(FLAGS_drain_grace);
  Log(Severity::kInfo, "draining", {{"grace", absl::FormatDuration(grace)}});
  core_->Drain();
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    TellReady();
    server_->SetServing(service_name_, false);
    server_->SetServing("", false);
    attach_->ReportNow();
  }
  // If all jobs have ended, Stop() waits up to kLastWrites, because the last events of jobs may
  // still be on their way to the router.
  last_writes_ = core_->AwaitNoJobs(grace) ? kLastWrites : absl::ZeroDuration();
}

void WorkerHost::Run(WorkerCore* core, const char* name, int max_batch,
                     const std::function<void()>& started) {
  core_ = core;
  core->name_log()->set_on_change([this] {
    MutexLock lock(&mutex_);
    if (attach_ != nullptr) attach_->CacheChanged();
  });
  StartKvThread();
  Loop loop({.name = name, .wakeup = &core_wakeup_, .pulse = &core_pulse_},
            [core](absl::Time now) { return core->RunOnce(now); });
  started();
  Attach(max_batch);
  DrainWhenStopped();
  Stop();
}

void WorkerHost::Stop() {
  watch_loop_ = nullptr;
  metrics_server_ = nullptr;
  server_->Shutdown(last_writes_);
  server_ = nullptr;
  // Jobs that were still running have been cancelled with their RPCs. Their blocks come back
  // through the KV thread.
  core_->AwaitNoJobs(kLastJobs);
  std::unique_ptr<AttachClient> attach;
  {
    MutexLock lock(&mutex_);
    attach = std::move(attach_);
  }
  // The client is destroyed without the lock, because its thread may be in Report(), which takes
  // the lock.
  attach = nullptr;
  kv_loop_->Stop();
  const WorkerLoad load = core_->Load();
  Log(Severity::kInfo, "stopped",
      {{"free_blocks", load.free_blocks},
       {"total_blocks", load.total_blocks},
       {"leases", load.leases}});
}

}  // namespace baton
