// Tests of how the programs start, refuse to start, and stop.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "baton/v1/decode_worker.grpc.pb.h"
#include "baton/v1/prefill_worker.grpc.pb.h"
#include "baton/v1/worker_identity.grpc.pb.h"
#include "common/base/scratch_folder.h"
#include "common/rpc/dial.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/process.h"
#include "tests/e2e/e2e_test.h"
#include "tests/shell/run_shell.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using Health = grpc::health::v1::HealthCheckResponse;

Ended RunProgram(const std::string& program, const std::vector<std::string>& arguments) {
  std::string command = absl::StrCat("exec timeout 20 ", BATON_BINARY_DIR, "/", program);
  for (const std::string& argument : arguments) absl::StrAppend(&command, " '", argument, "'");
  return RunShell(absl::StrCat(command, " </dev/null"));
}

const std::vector<std::string> kPrograms = {"baton-router", "baton-prefill", "baton-decode",
                                            "baton-client"};

TEST(ProgramTest, HelpAndVersionAnswerAndExitZero) {
  for (const std::string& program : kPrograms) {
    SCOPED_TRACE(program);
    const Ended help = RunProgram(program, {"--help"});
    EXPECT_EQ(help.exit_status, 0) << help.output;
    EXPECT_THAT(help.output, HasSubstr(program));
    EXPECT_THAT(help.output, HasSubstr("--"));
    const Ended version = RunProgram(program, {"--version"});
    EXPECT_EQ(version.exit_status, 0) << version.output;
    EXPECT_THAT(version.output, HasSubstr(absl::StrCat(program, " ")));
  }
}

struct BadStart {
  std::string program;
  std::vector<std::string> arguments;
  std::string says;
};

// Each program refuses a bad flag with exit status 2, and its message names what is wrong.
TEST(ProgramTest, EveryFlagIsChecked) {
  const std::string model = absl::StrCat("--model=", kDemoModel);
  std::vector<BadStart> cases = {
      {"baton-router", {"--model=/nowhere"}, "/nowhere"},
      {"baton-router", {model, "--listen=nowhere"}, "nowhere"},
      {"baton-router", {model, "--metrics-listen=9100"}, "--metrics-listen: '9100'"},
      {"baton-router",
       {model, "--metrics-listen=192.0.2.1:0"},
       "--metrics-listen: can't listen on 192.0.2.1:0"},
      {"baton-router", {model, "--report-limit=0s"}, "report-limit"},
      {"baton-router", {model, "--max-text-calls=0"}, "max-text-calls"},
      {"baton-router",
       {model, "--mode=both"},
       "--mode is 'both'; it takes disaggregated, colocated"},
      {"baton-router",
       {model, "--policy=random"},
       "--policy is 'random'; it takes prefix, least-loaded or round-robin"},
      {"baton-router",
       {model, "--serve-identity=demo"},
       "--serve-identity: 'demo' is neither FINGERPRINT nor FINGERPRINT/NUMERICS"},
      {"baton-router", {model, "--identity-lead=-1s"}, "--identity-lead is -1s"},
      {"baton-router", {model, "--auto-prompt-tokens=-1"}, "auto-prompt-tokens"},
      {"baton-router", {model, "--auto-queue-tokens=-1"}, "auto-queue-tokens"},
      {"baton-prefill", {model, "--chunk-tokens=0"}, "chunk"},
      {"baton-prefill",
       {model, "--chunk-tokens=17"},
       "--chunk-tokens is 17; it takes whole KV blocks, of 16 tokens each (--block-tokens)"},
      {"baton-prefill", {model, "--max-queue=0"}, "queue"},
      {"baton-prefill", {model, "--lease=1999ms"}, "--lease is 1.999s"},
      {"baton-decode", {model, "--max-batch=0"}, "batch"},
      {"baton-decode", {model, "--max-sequences=-1"}, "sequences"},
      {"baton-decode", {model, "--chunk-tokens=0"}, "--chunk-tokens is 0"},
      {"baton-decode", {model, "--max-batch=20000"}, "--max-batch is 20000"},
      {"baton-decode", {model, "--stall=0s"}, "stall"},
      {"baton-decode", {model, "--pause-limit=-1s"}, "pause"},
  };
  for (const std::string& program : kPrograms) {
    cases.push_back({program, {"--no-such-flag"}, "no-such-flag"});
  }
  for (const std::string program : {"baton-prefill", "baton-decode"}) {
    cases.push_back({program, {}, "--model"});
    cases.push_back({program, {"--model=/nowhere"}, "/nowhere"});
    cases.push_back({program, {model, "stray"}, "stray"});
    cases.push_back({program, {model, "--listen=here"}, "here"});
    cases.push_back({program, {model, "--listen=127.0.0.1:99999"}, "99999"});
    cases.push_back({program, {model, "--listen=0.0.0.0:0"}, "--advertise"});
    cases.push_back({program, {model, "--listen=[::]:0"}, "--advertise"});
    cases.push_back({program, {model, "--advertise=0.0.0.0"}, "--advertise is '0.0.0.0'"});
    cases.push_back({program, {model, "--listen=192.0.2.1:0"}, "192.0.2.1"});
    cases.push_back({program, {model, "--metrics-listen=:9100"}, "--metrics-listen: ':9100'"});
    cases.push_back({program,
                     {model, "--metrics-listen=192.0.2.1:0"},
                     "--metrics-listen: can't listen on 192.0.2.1:0"});
    cases.push_back({program, {model, "--advertise=a:b:c"}, "a:b:c"});
    cases.push_back({program, {model, "--routers="}, "router"});
    cases.push_back({program, {model, "--routers=there"}, "there"});
    cases.push_back({program, {model, "--backend=tpu"}, "tpu"});
    for (const std::string equipment : {"cuda-emulated", "fake"}) {
      cases.push_back({program,
                       {model, absl::StrCat("--backend=", equipment)},
                       absl::StrCat("--backend is '", equipment, "'; it takes cpu or cuda\n")});
    }
    cases.push_back({program, {model, "--emulated-device-bytes=1"}, "emulated-device-bytes"});
    cases.push_back({program, {model, "--emulated-device-kernels=1"}, "emulated-device-kernels"});
    cases.push_back({program, {model, "--gpu=1"}, "--gpu=1 with --backend=cpu"});
    cases.push_back({program, {model, "--kv-bytes=some"}, "some"});
    cases.push_back({program, {model, "--kv-bytes="}, "'' is not a valid value of --kv-bytes"});
    cases.push_back(
        {program, {model, "--kv-bytes=4Gig"}, "'4Gig' is not a valid value of --kv-bytes"});
    cases.push_back({program,
                     {model, "--kv-bytes=2MiB", "--context=2048"},
                     "one sequence of --context=2048 tokens needs 128 blocks, 3145728 bytes: "
                     "--kv-bytes=3Mi would work"});
    cases.push_back(
        {program, {model, "--kv-bytes=2MB"}, "a pool holds at least 2048 tokens, which need"});
    cases.push_back({program, {model, "--memory-share=0"}, "--memory-share is 0"});
    cases.push_back({program,
                     {model, "--usable-memory=50M", "--kv-bytes=auto"},
                     "the model does not fit: weights 6 MB"});
    cases.push_back({program,
                     {model, "--usable-memory=64M", "--kv-bytes=1Gi"},
                     "(--usable-memory has 64000000, of which 0 are in use)"});
    cases.push_back({program, {model, "--threads=-1"}, "-1"});
    cases.push_back({program, {model, "--threads=many"}, "many"});
    cases.push_back(
        {program, {model, "--numerics=sse"}, "--numerics: 'sse' is not one of auto, portable"});
    cases.push_back({program, {model, "--kv-bytes=1000"}, "1000"});
    cases.push_back({program, {model, "--kv-bytes=-5"}, "-5"});
    cases.push_back({program, {model, "--kv-bytes=1000000000000000"}, "1000000000000000"});
    cases.push_back({program, {model, "--block-tokens=0"}, "--block-tokens"});
    cases.push_back({program, {model, "--kv-type=f8"}, "f8"});
    cases.push_back({program, {model, "--context=1000000"}, "1000000"});
    cases.push_back({program, {model, "--kv-transports=pigeon"}, "pigeon"});
    cases.push_back({program, {model, "--kv-net-device=nosuchdev0"}, "nosuchdev0"});
    cases.push_back({program, {model, "--kv-device-path=nvlink"}, "--kv-device-path: 'nvlink'"});
    cases.push_back({program, {model, "--drain-grace=-1s"}, "drain"});
    cases.push_back({program, {model, "--report-interval=1ms"}, "report"});
    cases.push_back({program, {model, "--hang-limit=0s"}, "hang"});
  }
  // The worker programs of tests/programs support more backends, so their message lists more.
  for (const std::string program : {"../tests/baton-prefill-test", "../tests/baton-decode-test"}) {
    cases.push_back(
        {program, {model, "--backend=tpu"}, "it takes cpu, cuda, cuda-emulated or fake"});
    cases.push_back({program,
                     {model, "--backend=cuda-emulated", "--numerics=amx"},
                     "with --backend=cuda-emulated it takes only auto"});
    cases.push_back({program,
                     {model, "--backend=cuda-emulated", "--emulated-device-bytes=20000000"},
                     "bytes are missing; lower --chunk-tokens"});
    cases.push_back({program,
                     {model, "--backend=cuda-emulated", "--gpu=8"},
                     "--backend=cuda-emulated, --gpu=8: device 8 of 8"});
    cases.push_back({program, {model, "--backend=cuda-emulated", "--gpu=-1"}, "--gpu is -1"});
    cases.push_back({program,
                     {model, "--backend=cuda-emulated", "--emulated-device-kernels=-1"},
                     "--emulated-device-kernels is -1"});
    cases.push_back({program,
                     {model, "--backend=cuda-emulated", "--gpu-memory-utilization=1.5"},
                     "--gpu-memory-utilization is 1.5"});
    cases.push_back(
        {program, {model, "--backend=fake", "--random-weights"}, "which has no weights"});
    cases.push_back({program, {model, "--backend=fake", "--numerics=amx"}, "--backend=fake"});
  }
  for (const BadStart& c : cases) {
    std::string shown = c.program;
    for (const std::string& argument : c.arguments) absl::StrAppend(&shown, " ", argument);
    SCOPED_TRACE(shown);
    std::vector<std::string> arguments = c.arguments;
    // The KV pool is small, because some workers refuse to start only after they have allocated it.
    if (c.program != "baton-router" && c.program != "baton-client") {
      arguments.insert(arguments.begin(), "--kv-bytes=16Mi");
    }
    // The default port of the router may be taken on this machine.
    if (c.program == "baton-router") arguments.insert(arguments.begin(), "--listen=127.0.0.1:0");
    const Ended ended = RunProgram(c.program, arguments);
    EXPECT_EQ(ended.exit_status, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(c.says));
  }
}

// A worker behind an IPv6 address prints the address that it listens on and the one that it tells
// routers. It was started without --routers, so the output also names the router that it assumes.
TEST(ProgramTest, AnIpv6AddressIsAdvertisedInBracketsBesideTheOneThatIsListenedOn) {
  const ScratchFolder folder;
  const auto worker = Process::Start(
      {absl::StrCat(BATON_BINARY_DIR, "/baton-prefill"), absl::StrCat("--model=", kDemoModel),
       "--advertise=fd00::5", "--kv-bytes=16Mi"},
      folder.File("ipv6.log"));
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto address = (*worker)->WaitForLine("listening on ", absl::Seconds(60));
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_THAT(*address,
              testing::MatchesRegex("127.0.0.1:([0-9]+) .advertised as .fd00::5.:[0-9]+."));
  const auto assumed = (*worker)->log().WaitFor("routers_not_given", absl::Seconds(10));
  ASSERT_TRUE(assumed.ok()) << assumed.status();
  EXPECT_THAT(*assumed, HasSubstr("routers=127.0.0.1:50051"));
}

// The default number of tokens of a step is rounded up to whole blocks.
TEST(ProgramTest, APrefillWorkerTakesBlocksOfAnySize) {
  for (const char* block_tokens : {"96", "1024"}) {
    const ScratchFolder folder;
    const auto worker = Process::Start(
        {absl::StrCat(BATON_BINARY_DIR, "/baton-prefill"), absl::StrCat("--model=", kDemoModel),
         "--listen=127.0.0.1:0", absl::StrCat("--block-tokens=", block_tokens), "--kv-bytes=64Mi"},
        folder.File("log"));
    ASSERT_TRUE(worker.ok()) << worker.status();
    const auto address = (*worker)->WaitForLine("listening on ", absl::Seconds(60));
    EXPECT_TRUE(address.ok()) << block_tokens << ": " << address.status();
  }
}

// Making random weights takes time. A worker that is stopped during this time ends immediately, and
// never reaches a router.
TEST(ProgramTest, AStopWhileTheModelIsLoadedEndsAWorkerAtOnce) {
  const ScratchFolder folder;
  const auto worker = Process::Start(
      {absl::StrCat(BATON_BINARY_DIR, "/baton-decode"), "--random-weights", "--kv-bytes=64Mi",
       absl::StrCat("--model=", BATON_SOURCE_DIR, "/tests/bench/shapes/1b")},
      folder.File("log"));
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE((*worker)->log().WaitFor("loading_model", absl::Seconds(60)).ok());
  (*worker)->Signal(SIGTERM);
  const auto status = (*worker)->Wait(absl::Seconds(60));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 128 + SIGTERM);
  EXPECT_TRUE((*worker)->log().WaitFor("stopped_while_starting", absl::Seconds(10)).ok());
}

// Workers that sum in different orders compute different KV. Such workers are never paired, and a
// client gets the reason. Workers with the same order serve.
TEST(ProgramTest, WorkersOfUnequalNumericsAreNotPaired) {
  for (const std::string prefill : {"portable", "f32"}) {
    const bool paired = prefill == "portable";
    auto cluster = Cluster::Start({.router_flags = {paired ? "--pair-wait=30s" : "--pair-wait=1s"},
                                   .prefill_flags = {absl::StrCat("--numerics=", prefill)},
                                   .decode_flags = {"--numerics=portable"},
                                   .pairs = paired});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const Answer answer = Generate((*cluster)->stub(), TokenRequest({5, 6, 7}, 4));
    if (paired) {
      EXPECT_TRUE(answer.status.ok()) << answer.status;
    } else {
      EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(answer.status.message()), HasSubstr("numerics"));
      for (Process* told :
           {&(*cluster)->router(), &(*cluster)->prefill(0), &(*cluster)->decode(0)}) {
        const char* event =
            told == &(*cluster)->router() ? "worker_without_partner" : "no_partner_fits";
        const auto line = told->log().WaitFor(event, absl::Seconds(30));
        ASSERT_TRUE(line.ok()) << line.status();
        EXPECT_THAT(*line, HasSubstr("numerics"));
      }
    }
  }
}

// A draining worker finishes its running requests, gets no new ones, and exits with status 0.
TEST(ProgramTest, SigtermDrainsWorkersAndRouter) {
  auto cluster = Cluster::Start({.prefill = 2, .decode = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const v1::GenerateRequest request = TokenRequest({5, 6, 7, 8}, 600);
  const Answer peace = Generate((*cluster)->stub(), request);
  ASSERT_TRUE(peace.status.ok()) << peace.status;
  bool drained = false;
  const Answer answer =
      Generate((*cluster)->stub(), request, absl::Seconds(60), [&](const v1::Token&) {
        if (drained) return;
        drained = true;
        (*cluster)->decode(0).Signal(SIGTERM);
        (*cluster)->prefill(0).Signal(SIGTERM);
      });
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.ids(), peace.ids());
  for (Process* worker : {&(*cluster)->decode(0), &(*cluster)->prefill(0)}) {
    const auto status = worker->Wait(absl::Seconds(30));
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(*status, 0);
  }
  // The router gets SIGTERM while it streams an answer, and must finish the answer.
  bool asked = false;
  const Answer last =
      Generate((*cluster)->stub(), request, absl::Seconds(60), [&](const v1::Token&) {
        if (asked) return;
        asked = true;
        (*cluster)->router().Signal(SIGTERM);
      });
  EXPECT_TRUE(last.status.ok()) << last.status;
  EXPECT_EQ(last.ids(), peace.ids());
  const auto status = (*cluster)->router().Wait(absl::Seconds(30));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 0);
}

TEST(ProgramTest, ASecondSignalEndsAWorkerAtOnce) {
  // Requests do not wait for another decode worker (--pair-wait=0s), because none will come.
  auto cluster = Cluster::Start({.router_flags = {"--pair-wait=0s"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  bool signalled = false;
  const Answer answer = Generate((*cluster)->stub(), TokenRequest({5, 6, 7, 8}, 4000),
                                 absl::Seconds(20), [&](const v1::Token& token) {
                                   if (token.position() < 8 || signalled) return;
                                   signalled = true;
                                   Process& decode = (*cluster)->decode(0);
                                   decode.Signal(SIGTERM);
                                   EXPECT_TRUE(decode.log().WaitFor(" draining ", kSoon).ok());
                                   decode.Signal(SIGTERM);
                                 });
  ASSERT_TRUE(signalled) << answer.status;
  const auto status = (*cluster)->decode(0).Wait(absl::Seconds(10));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 130);
}

TEST(ProgramTest, ASecondSignalEndsTheRouterAtOnce) {
  auto cluster = Cluster::Start({});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  Process& router = (*cluster)->router();
  uint32_t draining_at = 0;
  bool ended = false;
  const Answer answer =
      Generate((*cluster)->stub(), TokenRequest({5, 6, 7, 8}, 4000), absl::Seconds(60),
               [&](const v1::Token& token) {
                 if (draining_at == 0 && token.position() >= 8) {
                   draining_at = token.position();
                   router.Signal(SIGTERM);
                   EXPECT_TRUE(router.log().WaitFor(" draining ", kSoon).ok());
                 } else if (draining_at != 0 && !ended && token.position() == draining_at + 400) {
                   // The first SIGTERM only made the router drain: the answer has since continued
                   // by 400 tokens, many more than were in flight at the signal. The second SIGTERM
                   // stops the router.
                   ended = true;
                   router.Signal(SIGTERM);
                 }
               });
  EXPECT_TRUE(ended);
  EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
  EXPECT_LT(answer.tokens.size(), 4000u);
  const auto status = router.Wait(absl::Seconds(10));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(*status, 130);
}

// Waits until grpc.health.v1 reports the status `wanted` for `service`. Asks again if the
// connection ends: on a busy machine, a peer may answer a keepalive ping too late.
void AwaitHealth(const std::string& address, const std::string& service,
                 Health::ServingStatus wanted) {
  const auto stub = grpc::health::v1::Health::NewStub(Dial(address));
  const absl::Time end = absl::Now() + kSoon;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  Health said;
  std::string why;
  while (absl::Now() < end) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(end));
    context.set_wait_for_ready(true);
    const auto reader = stub->Watch(&context, request);
    while (reader->Read(&said)) {
      if (said.status() == wanted) return;
    }
    why = reader->Finish().error_message();
  }
  ADD_FAILURE() << "'" << service << "' of " << address << " does not become " << wanted
                << "; the last word was " << said.status() << ", and then " << why;
}

// Asks grpc.reflection.v1alpha one question: the request's `field` is set to `value`. Returns the
// response.
std::unique_ptr<google::protobuf::Message> AskReflection(const std::string& address,
                                                         const std::string& field,
                                                         const std::string& value) {
  // This makes the linker keep the types.
  grpc::reflection::v1alpha::ServerReflectionRequest::descriptor();
  using google::protobuf::DescriptorPool;
  using google::protobuf::MessageFactory;
  const auto make = [](const char* name) {
    const auto* type = DescriptorPool::generated_pool()->FindMessageTypeByName(
        std::string("grpc.reflection.v1alpha.ServerReflection") + name);
    return std::unique_ptr<google::protobuf::Message>(
        MessageFactory::generated_factory()->GetPrototype(type)->New());
  };
  const auto request = make("Request");
  auto response = make("Response");
  request->GetReflection()->SetString(request.get(),
                                      request->GetDescriptor()->FindFieldByName(field), value);
  grpc::GenericStub stub(Dial(address));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kSoon));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const grpc::Slice bytes(request->SerializeAsString());
  grpc::ByteBuffer answer;
  call->StartCall(nullptr);
  EXPECT_TRUE(done());
  call->Write(grpc::ByteBuffer(&bytes, 1), nullptr);
  EXPECT_TRUE(done());
  call->Read(&answer, nullptr);
  EXPECT_TRUE(done());
  grpc::Slice answered;
  EXPECT_TRUE(answer.DumpToSingleSlice(&answered).ok());
  EXPECT_TRUE(response->ParseFromArray(answered.begin(), static_cast<int>(answered.size())));
  grpc::Status status;
  context.TryCancel();
  call->Finish(&status, nullptr);
  EXPECT_TRUE(done());
  return response;
}

std::vector<std::string> ListedServices(const std::string& address) {
  const auto response = AskReflection(address, "list_services", "*");
  const auto* type = response->GetDescriptor();
  const auto& list = response->GetReflection()->GetMessage(
      *response, type->FindFieldByName("list_services_response"));
  const auto* services = list.GetDescriptor()->FindFieldByName("service");
  std::vector<std::string> names;
  for (int i = 0; i < list.GetReflection()->FieldSize(list, services); ++i) {
    const auto& service = list.GetReflection()->GetRepeatedMessage(list, services, i);
    names.push_back(service.GetReflection()->GetString(
        service, service.GetDescriptor()->FindFieldByName("name")));
  }
  return names;
}

// Returns true if a generic client can learn the methods of `service` by reflection. Such a client
// can't call a method that it has not learned.
bool IsDescribed(const std::string& address, const std::string& service) {
  const auto response = AskReflection(address, "file_containing_symbol", service);
  return response->GetReflection()->HasField(
      *response, response->GetDescriptor()->FindFieldByName("file_descriptor_response"));
}

TEST(ProgramTest, EveryServerListsItsServicesAndTellsItsHealth) {
  auto cluster = Cluster::Start({});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string router = (*cluster)->address();
  const std::string prefill = (*cluster)->prefill_address(0);
  const std::string decode = (*cluster)->decode_address(0);
  const std::vector<std::pair<std::string, std::vector<std::string>>> all = {
      {router, {"baton.v1.Inference", "baton.v1.Membership"}},
      {prefill, {"baton.v1.PrefillWorker"}},
      {decode, {"baton.v1.DecodeWorker"}}};
  for (const auto& [address, services] : all) {
    const std::vector<std::string> listed = ListedServices(address);
    EXPECT_THAT(listed, IsSupersetOf(services));
    EXPECT_THAT(listed, testing::Contains("grpc.reflection.v1alpha.ServerReflection"));
    EXPECT_THAT(listed, testing::Contains("grpc.health.v1.Health"));
    for (const std::string& service : listed) {
      EXPECT_TRUE(IsDescribed(address, service)) << service << " of " << address;
    }
    EXPECT_FALSE(IsDescribed(address, "no.such.Service"));
    for (const std::string& service : services) AwaitHealth(address, service, Health::SERVING);
    AwaitHealth(address, "", Health::SERVING);
    AwaitHealth(address, "no.such.Service", Health::SERVICE_UNKNOWN);
  }
  for (const std::string& worker : {prefill, decode}) {
    AwaitHealth(worker, "ready", Health::SERVING);
  }
  // A draining worker reports NOT_SERVING while it finishes its requests, and so does a router
  // without a pair of workers.
  bool drained = false;
  const Answer answer =
      Generate((*cluster)->stub(), TokenRequest({5, 6, 7, 8}, 600), absl::Seconds(60),
               [&](const v1::Token& token) {
                 if (drained || token.position() < 8) return;
                 drained = true;
                 (*cluster)->decode(0).Signal(SIGTERM);
                 AwaitHealth(decode, "baton.v1.DecodeWorker", Health::NOT_SERVING);
                 AwaitHealth(decode, "", Health::NOT_SERVING);
                 AwaitHealth(decode, "ready", Health::NOT_SERVING);
                 AwaitHealth(prefill, "baton.v1.PrefillWorker", Health::SERVING);
                 AwaitHealth(router, "baton.v1.Inference", Health::NOT_SERVING);
                 AwaitHealth(router, "baton.v1.Membership", Health::SERVING);
               });
  EXPECT_TRUE(drained);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.tokens.size(), 600u);
  (*cluster)->prefill(0).Signal(SIGTERM);
  EXPECT_TRUE((*cluster)->decode(0).Wait(kSoon).ok());
  ASSERT_TRUE((*cluster)->RestartDecode(0).ok());
  EXPECT_TRUE((*cluster)->prefill(0).Wait(kSoon).ok());
  ASSERT_TRUE((*cluster)->RestartPrefill(0).ok());
  AwaitHealth(router, "baton.v1.Inference", Health::SERVING);
}

// A request reaches only the process that it is meant for. After a restart another process may
// listen at the address, or another machine's worker may have the same one.
TEST(ProgramTest, WorkersRefuseRequestsThatAreMeantForAnotherProcess) {
  auto started = Cluster::Start({});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  const auto ask = [](const std::string& address, bool prefill, bool right) -> grpc::Status {
    const auto channel = Dial(address);
    v1::IdentifyResponse identity;
    {
      grpc::ClientContext context;
      const grpc::Status status =
          v1::WorkerIdentity::NewStub(channel)->Identify(&context, {}, &identity);
      if (!status.ok()) return status;
    }
    // The request has no tokens, so the worker of this epoch refuses it as invalid. A worker of
    // another epoch refuses it because of the epoch.
    const uint64_t epoch = identity.epoch() + (right ? 0 : 1);
    grpc::ClientContext context;
    if (prefill) {
      v1::PrefillRequest request;
      request.set_worker_epoch(epoch);
      const auto stream = v1::PrefillWorker::NewStub(channel)->Prefill(&context, request);
      return stream->Finish();
    }
    v1::DecodeRequest request;
    request.set_worker_epoch(epoch);
    return v1::DecodeWorker::NewStub(channel)->Decode(&context, request)->Finish();
  };
  for (const bool prefill : {true, false}) {
    const std::string& address = prefill ? cluster.prefill_address(0) : cluster.decode_address(0);
    EXPECT_EQ(ask(address, prefill, /*right=*/true).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
    const grpc::Status status = ask(address, prefill, /*right=*/false);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
    EXPECT_THAT(status.error_message(), HasSubstr("is meant for the worker of epoch"));
  }
}

TEST(ProgramTest, WorkersForgetCachedKvOnRequest) {
  auto started = Cluster::Start({});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  v1::GenerateRequest request = TokenRequest(std::vector<int32_t>(40, 5), 4);
  request.set_mode(v1::SERVING_MODE_DISAGGREGATED);
  // The request has the same prompt each time. Returns what prefill and decode have found cached.
  const auto cached = [&] {
    const Answer answer = Generate(cluster.stub(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    return std::pair(answer.summary.usage().cached_tokens(), answer.summary.decode_cached_tokens());
  };
  const auto forget = [&](auto message, const std::string& address, auto call) {
    grpc::ClientContext identify, context;
    v1::IdentifyResponse identity;
    const auto channel = Dial(address);
    ASSERT_TRUE(v1::WorkerIdentity::NewStub(channel)->Identify(&identify, {}, &identity).ok());
    message.set_worker_epoch(identity.epoch());
    message.mutable_token_ids()->Add(request.token_ids().ids().begin(),
                                     request.token_ids().ids().end());
    message.set_original_prompt_tokens(40);
    message.mutable_sampling()->set_seed(1);
    message.mutable_sampling()->set_temperature(0);
    message.mutable_sampling()->set_max_tokens(1);
    message.mutable_cache()->set_use(v1::CACHE_USE_FORGET);
    const auto stream = call(channel, &context, message);
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
  };
  cached();
  EXPECT_EQ(cached(), std::pair(32u, 32u));
  forget(v1::PrefillRequest(), cluster.prefill_address(0),
         [](const auto& channel, auto* context, const auto& message) {
           return v1::PrefillWorker::NewStub(channel)->Prefill(context, message);
         });
  EXPECT_EQ(cached(), std::pair(0u, 32u));
  forget(v1::DecodeRequest(), cluster.decode_address(0),
         [](const auto& channel, auto* context, const auto& message) {
           return v1::DecodeWorker::NewStub(channel)->Decode(context, message);
         });
  EXPECT_EQ(cached(), std::pair(32u, 0u));
}

// A rollout replaces an old worker as soon as a new worker is ready. So a worker that can't be
// paired with any worker of the other role must not become ready, or it would replace a worker that
// serves.
TEST(ProgramTest, AWorkerThatFitsNobodyIsNotReady) {
  auto started = Cluster::Start({.decode_flags = {"--kv-type=f32"}, .pairs = false});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  cluster.prefill(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.prefill(0).Wait(kSoon).ok());
  // While no worker of the other role runs, a worker is ready.
  AwaitHealth(cluster.decode_address(0), "ready", Health::SERVING);
  ASSERT_TRUE(cluster.RestartPrefill(0).ok());
  AwaitHealth(cluster.decode_address(0), "ready", Health::NOT_SERVING);
  AwaitHealth(cluster.decode_address(0), "baton.v1.DecodeWorker", Health::SERVING);
  cluster.decode(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.decode(0).Wait(kSoon).ok());
  AwaitHealth(cluster.prefill_address(0), "ready", Health::SERVING);
}

// Returns true if the process answers a health check, whatever it says. On a busy machine that may
// take seconds.
bool AnswersHealth(const std::string& address) {
  const auto stub = grpc::health::v1::Health::NewStub(Dial(address));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  context.set_wait_for_ready(true);
  Health said;
  return stub->Check(&context, {}, &said).ok();
}

// Stops one thread of a process, as if the thread hung, until the end of the scope. `address` is
// where the process tells its health. The thread is stopped while it waits in the kernel. In the
// middle of its work, or while it waits for a lock, it may hold a lock of gRPC or of malloc, and
// then the process answers no health check at all. So it is stopped again until the process does.
class HungThread {
 public:
  HungThread(pid_t process, const std::string& name, const std::string& address) {
    const std::string tasks = absl::StrCat("/proc/", process, "/task");
    for (const auto& entry : std::filesystem::directory_iterator(tasks)) {
      std::ifstream file(entry.path() / "comm");
      std::string comm;
      if (!std::getline(file, comm) || comm != name) continue;
      // A new thread has its parent's name until it sets a name of its own. If several threads have
      // the name `name`, the oldest of them is meant.
      const auto id = static_cast<pid_t>(std::stol(entry.path().filename().string()));
      if (thread_ == 0 || id < thread_) thread_ = id;
    }
    if (thread_ == 0) return;
    const absl::Time end = absl::Now() + kSoon;
    while (!held_ && absl::Now() < end) {
      if (ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr) != 0) {
        refused_ = errno;
        return;
      }
      ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr);
      int status = 0;
      if (waitpid(thread_, &status, __WALL) != thread_ || !WIFSTOPPED(status)) return;
      held_ = Waits(absl::StrCat(tasks, "/", thread_, "/syscall")) && AnswersHealth(address);
      if (!held_) ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
    }
  }
  ~HungThread() {
    if (held_) ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
  }
  bool held() const { return held_; }
  // Returns 0, or the errno of ptrace if this process may not stop another process's thread.
  int refused() const { return refused_; }

 private:
  // Returns whether the stopped thread is in a system call that waits. The file `syscall` begins
  // with the call's number (proc(5)). Returns true if this system has no such file.
  static bool Waits(const std::string& syscall) {
    std::ifstream file(syscall);
    if (!file) return true;
    long number = -1;
    file >> number;
    switch (number) {
      case SYS_futex:
      case SYS_poll:
      case SYS_ppoll:
      case SYS_epoll_wait:
      case SYS_epoll_pwait:
        return true;
      default:
        return false;
    }
  }

  pid_t thread_ = 0;
  bool held_ = false;
  int refused_ = 0;
};

// One thread of a worker hangs. The thread that sends the worker's reports to the routers does not
// hang, and could go on reporting. Even so, the router must send no requests to this worker until
// the other thread goes on.
TEST(ProgramTest, AWorkerWithAThreadThatHangsCountsAsDeadUntilItGetsOn) {
  auto started = Cluster::Start({.prefill = 2,
                                 .decode = 2,
                                 .router_flags = {"--report-limit=1s", "--stall=1s"},
                                 .prefill_flags = {"--report-interval=100ms", "--hang-limit=1s"},
                                 .decode_flags = {"--report-interval=100ms", "--hang-limit=1s"}});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  const v1::GenerateRequest request = TokenRequest({5, 6, 7, 8}, 40);
  const Answer peace = Generate(cluster.stub(), request);
  ASSERT_TRUE(peace.status.ok()) << peace.status;
  struct Hang {
    Process* worker;
    std::string address, service, thread;
  };
  for (const Hang& hang :
       {Hang{&cluster.decode(0), cluster.decode_address(0), "baton.v1.DecodeWorker", "decode"},
        Hang{&cluster.prefill(1), cluster.prefill_address(1), "baton.v1.PrefillWorker", "kv"}}) {
    SCOPED_TRACE(absl::StrCat(hang.service, " ", hang.thread));
    {
      const HungThread hung(hang.worker->pid(), hang.thread, hang.address);
      if (hung.refused() != 0) {
        GTEST_SKIP() << "threads of other processes may not be held here: "
                     << strerror(hung.refused());
      }
      ASSERT_TRUE(hung.held());
      const auto line = hang.worker->log().WaitFor(" hangs ", kSoon);
      ASSERT_TRUE(line.ok()) << line.status();
      EXPECT_EQ(FieldOf(*line, "threads"), hang.thread == "kv" ? "kv" : "core");
      AwaitHealth(hang.address, hang.service, Health::NOT_SERVING);
      AwaitHealth(hang.address, "", Health::NOT_SERVING);
      const absl::Status missed = cluster.WaitNotReady(2, 2, kSoon);
      ASSERT_TRUE(missed.ok()) << missed;
      for (int i = 0; i < 4; ++i) {
        const Answer answer = Generate(cluster.stub(), request);
        ASSERT_TRUE(answer.status.ok()) << answer.status;
        EXPECT_EQ(answer.ids(), peace.ids());
        EXPECT_NE(answer.summary.prefill_worker(), hang.address);
        EXPECT_NE(answer.summary.decode_worker(), hang.address);
      }
    }
    ASSERT_TRUE(hang.worker->log().WaitFor(" hangs_no_more", kSoon).ok());
    AwaitHealth(hang.address, hang.service, Health::SERVING);
    const absl::Status back = cluster.WaitReady(2, 2, kSoon);
    ASSERT_TRUE(back.ok()) << back;
  }
}

// Clients and Kubernetes must not choose a router whose loop hangs, although gRPC's threads answer.
TEST(ProgramTest, ARouterWhoseLoopHangsDoesNotServeUntilItGetsOn) {
  auto started = Cluster::Start({.router_flags = {"--hang-limit=500ms"}});
  ASSERT_TRUE(started.ok()) << started.status();
  Cluster& cluster = **started;
  AwaitHealth(cluster.address(), "", Health::SERVING);
  {
    const HungThread hung(cluster.router().pid(), "router", cluster.address());
    if (hung.refused() != 0) {
      GTEST_SKIP() << "threads of other processes may not be held here: "
                   << strerror(hung.refused());
    }
    ASSERT_TRUE(hung.held());
    AwaitHealth(cluster.address(), "baton.v1.Inference", Health::NOT_SERVING);
    AwaitHealth(cluster.address(), "", Health::NOT_SERVING);
    AwaitHealth(cluster.address(), "baton.v1.Membership", Health::NOT_SERVING);
  }
  AwaitHealth(cluster.address(), "", Health::SERVING);
  AwaitHealth(cluster.address(), "baton.v1.Inference", Health::SERVING);
  AwaitHealth(cluster.address(), "baton.v1.Membership", Health::SERVING);
  EXPECT_TRUE(Generate(cluster.stub(), TokenRequest({5, 6, 7}, 4)).status.ok());
}

}  // namespace
}  // namespace baton
