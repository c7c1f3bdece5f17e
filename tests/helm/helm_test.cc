// Tests of the manifests that the chart renders.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/program.h"
#include "common/base/scratch_folder.h"
#include "tests/helm/helm_harness.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Returns the Deployments in `manifests`. The key is router, prefill or decode.
std::map<std::string, std::string> DeploymentsOf(const std::string& manifests) {
  std::map<std::string, std::string> deployments = {
      {"router", ""}, {"prefill", ""}, {"decode", ""}};
  for (absl::string_view document : absl::StrSplit(manifests, "\n---\n")) {
    for (auto& [part, deployment] : deployments) {
      const std::string begin =
          absl::StrCat("kind: Deployment\nmetadata:\n  name: baton-", part, "\n");
      if (absl::StrContains(document, begin)) deployment = std::string(document);
    }
  }
  return deployments;
}

// Returns the names of all value files: the chart's defaults and every example.
std::vector<std::string> ValueFiles() {
  std::vector<std::string> files = {"defaults"};
  for (const auto& entry : fs::directory_iterator(kChart / "examples")) {
    files.push_back(entry.path().stem().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string FlagOf(const std::string& values) {
  if (values == "defaults") return "";
  return absl::StrCat(" --values ", (kChart / "examples" / values).string(), ".yaml");
}

class HelmValuesTest : public HelmTest, public testing::WithParamInterface<std::string> {};

TEST_P(HelmValuesTest, RendersAsItDid) {
  const Ended rendered = Template(absl::StrCat("--set attach.token=golden", FlagOf(GetParam())));
  ASSERT_EQ(rendered.exit_status, 0) << rendered.output;
  const fs::path golden = kGolden / (GetParam() + ".yaml");
  if (std::getenv("BATON_WRITE_GOLDEN") != nullptr) std::ofstream(golden) << rendered.output;
  // Compares line by line, so that a difference is readable.
  const std::vector<std::string> now = absl::StrSplit(rendered.output, '\n');
  const std::vector<std::string> then = absl::StrSplit(Read(golden), '\n');
  for (size_t i = 0; i < std::max(now.size(), then.size()); ++i) {
    ASSERT_EQ(i < now.size() ? now[i] : "(the end)", i < then.size() ? then[i] : "(the end)")
        << golden << ":" << i + 1 << ": where this is meant, BATON_WRITE_GOLDEN=1 writes it anew";
  }
}

TEST_P(HelmValuesTest, PassesLintStrictly) {
  const Ended lint =
      RunShell(absl::StrCat(helm_, " lint --strict ", kChart.string(), FlagOf(GetParam())));
  EXPECT_EQ(lint.exit_status, 0) << lint.output;
}

// Checks the flags in the golden files. The test RendersAsItDid checks that the chart still renders
// these files.
TEST(HelmGoldenTest, GivesEachProgramFlagsThatItHas) {
  std::map<std::string, std::set<std::string>> known;
  for (const std::string& values : ValueFiles()) {
    SCOPED_TRACE(values);
    const std::string golden = Read(kGolden / (values + ".yaml"));
    std::string program;
    int checked = 0;
    for (absl::string_view line : absl::StrSplit(golden, '\n')) {
      line = absl::StripLeadingAsciiWhitespace(line);
      if (absl::ConsumePrefix(&line, "command: [baton-")) {
        program = absl::StrCat("baton-", absl::StripSuffix(line, "]"));
        if (!known.contains(program)) known[program] = FlagsOf(program);
      } else if (absl::ConsumePrefix(&line, "- --")) {
        const std::string flag =
            absl::StrCat("--", std::vector<std::string>(absl::StrSplit(line, '='))[0]);
        EXPECT_TRUE(known[program].contains(flag)) << program << " has no " << flag;
        ++checked;
      }
    }
    EXPECT_GT(checked, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Values, HelmValuesTest, testing::ValuesIn(ValueFiles()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_F(HelmTest, ValuesThatDoNotFitTogetherAreNamed) {
  EXPECT_THAT(Template("--set model.source=pvc").output, HasSubstr("model.pvc.claimName"));
  EXPECT_THAT(Template("--set model.source=hostPath").output, HasSubstr("model.hostPath.path"));
  EXPECT_THAT(Template("--set model.source=init").output,
              HasSubstr("but model.init has no image, command or args"));
  for (const char* flag : {"--drain-grace=5s", "-drain_grace", "--drain-grace", "--pair-wait=9s",
                           "--max-connection-age=9m"}) {
    EXPECT_THAT(Template(absl::StrCat("--set 'router.args={--max-queued=9,", flag, "}'")).output,
                HasSubstr(absl::StrCat("router.args has '", flag, "'")));
  }
  EXPECT_THAT(Template("--set prefill.args={--listen=0.0.0.0:9}").output,
              HasSubstr("would contradict other parts of the manifest; set prefill.port"));
  EXPECT_EQ(Template("--set decode.args={--kv-type=f16}").exit_status, 0);
  EXPECT_THAT(Template("--set metrics.port=50052").output,
              HasSubstr("metrics.port and prefill.port are both 50052"));
  EXPECT_EQ(Template("--set metrics.port=50052 --set metrics.enabled=false").exit_status, 0);
  EXPECT_THAT(Template("--set decode.backend=cuda --set decode.gpu.count=1 "
                       "--set numerics=portable")
                  .output,
              HasSubstr("numerics is 'portable'; with decode.backend 'cuda' it must be auto"));
  EXPECT_THAT(
      Template("--set prefill.backend=cuda --set prefill.gpu.count=1 --set numerics=f32").output,
      HasSubstr("numerics is 'f32'; with prefill.backend 'cuda' it must be auto"));
  EXPECT_THAT(Template("--set decode.backend=cuda").output,
              HasSubstr("decode.backend is 'cuda' and decode.gpu.count 0"));
  EXPECT_THAT(Template("--set prefill.gpu.count=1").output,
              HasSubstr("prefill.gpu.count is 1 and prefill.backend 'cpu', which uses no GPU"));
  EXPECT_THAT(Template("--set decode.gpu.count=1 --set decode.backend=cpu").output,
              HasSubstr("decode.gpu.count is 1 and decode.backend 'cpu', which uses no GPU"));
  EXPECT_THAT(Template("--set decode.gpu.count=2 --set decode.backend=cuda").output,
              HasSubstr("at '/decode/gpu/count': maximum: got 2, want 1"));
  EXPECT_THAT(Template("--set router.autoscaling.enabled=true --set "
                       "router.autoscaling.minReplicas=5")
                  .output,
              HasSubstr("router.autoscaling.minReplicas is 5, more than maxReplicas, which is 4"));
  EXPECT_EQ(Template("--set decode.autoscaling.minReplicas=5").exit_status, 0) << "not used";
  EXPECT_THAT(Template("--set decode.autoscaling.enabled=true --set "
                       "decode.autoscaling.cpuPercent=null")
                  .output,
              HasSubstr("decode.autoscaling.enabled is true, cpuPercent null and metrics empty"));
  EXPECT_THAT(Template("--kube-version 1.26.0").output, HasSubstr(">=1.27"));
}

TEST_F(HelmTest, ReleasesWhoseNamesServicesCantHaveAreRefused) {
  const auto named = [&](const std::string& release, const std::string& arguments) {
    return RunShell(absl::StrCat(helm_, " template ", release, " ", kChart.string(),
                                 " --kube-version 1.31.0 --show-only templates/services.yaml ",
                                 arguments));
  };
  EXPECT_THAT(named("7b-chat", "").output,
              HasSubstr("Services can't be called '7b-chat-baton', as the release is named "
                        "'7b-chat': fullnameOverride takes a name that begins with a letter"));
  EXPECT_THAT(named("chat.v2", "").output, HasSubstr("can't be called 'chat.v2-baton'"));
  EXPECT_THAT(named("chat", "--set nameOverride=Chat_2").output,
              HasSubstr("can't be called 'chat-Chat_2'"));
  EXPECT_THAT(named("7b-chat", "--set fullnameOverride=chat-7b").output,
              AllOf(HasSubstr("\n  name: chat-7b\n"), HasSubstr("instance: 7b-chat\n")));
  EXPECT_THAT(named("chat-7b", "").output, HasSubstr("\n  name: chat-7b-baton\n"));
  EXPECT_THAT(named("my-baton", "").output, HasSubstr("\n  name: my-baton\n"));
  // This name has the max length of a release name.
  EXPECT_THAT(named("a-release-whose-name-is-as-long-as-helm-lets-it-be-ok", "").output,
              HasSubstr("\n  name: a-release-whose-name-is-as-long-as-helm\n"));
}

TEST_F(HelmTest, AnInitContainerMayReachWhatItFetchesFrom) {
  const std::string policies =
      "--show-only templates/networkpolicy.yaml --set networkPolicy.egress=true "
      "--set model.source=init --set model.init.image=fetch ";
  const Ended refused = Template(policies);
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.output, HasSubstr("networkPolicy.egress is true and networkPolicy.egressTo "
                                        "empty: with model.source 'init'"));
  const Ended rendered =
      Template(policies +
               "--set networkPolicy.egressTo[0].to[0].ipBlock.cidr=203.0.113.0/24 "
               "--set networkPolicy.egressTo[0].ports[0].port=443");
  EXPECT_EQ(rendered.exit_status, 0) << rendered.output;
  EXPECT_EQ(Count(rendered.output, R"(
    - to:
        - podSelector:
            matchLabels:
              app.kubernetes.io/name: baton
              app.kubernetes.io/instance: baton
    - ports:
      - port: 443
      to:
      - ipBlock:
          cidr: 203.0.113.0/24
)"),
            3);
  const std::string fetches = "--set model.source=init --set model.init.image=fetch ";
  EXPECT_EQ(Template(fetches).exit_status, 0);
  EXPECT_EQ(Template(fetches + "--set networkPolicy.egress=true --set networkPolicy.enabled=false")
                .exit_status,
            0);
}

// Sets values that no example sets, for each of the parts router, prefill and decode.
TEST_F(HelmTest, RoutersAndWorkersTakeWhatOnePartTakes) {
  constexpr char kPart[] = R"({
      "args": ["--PART-flag=1"],
      "env": [{"name": "OF_PART", "value": "a"}],
      "envFrom": [{"secretRef": {"name": "from-PART"}}],
      "volumes": [{"name": "PART-data", "emptyDir": {}}],
      "volumeMounts": [{"name": "PART-data", "mountPath": "/PART"}],
      "schedulerName": "PART-scheduler",
      "dnsPolicy": "None",
      "dnsConfig": {"nameservers": ["192.0.2.1"], "searches": ["PART.example"],
                    "options": [{"name": "ndots", "value": "2"}]},
      "deploymentAnnotations": {"example.com/of": "PART"},
      "resourceClaims": [{"name": "PART-gpu", "resourceClaimTemplateName": "one-gpu"}],
      "resources": {"claims": [{"name": "PART-gpu"}]},
      "extraInitContainers": [{"name": "PART-first", "image": "wait", "restartPolicy": "Always",
          "startupProbe": {"tcpSocket": {"port": 99}}}],
      "extraContainers": [{"name": "PART-proxy", "image": "proxy", "args": ["--of=PART"],
          "lifecycle": {"preStop": {"sleep": {"seconds": 3}}}}],
      "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
          {"topologyKey": "PART-host"}]}}})";
  const ScratchFolder folder;
  const std::vector<std::string> parts = {"router", "prefill", "decode"};
  std::vector<std::string> values;
  for (const std::string& part : parts) {
    values.push_back(
        absl::StrCat("\"", part, "\": ", absl::StrReplaceAll(kPart, {{"PART", part}})));
  }
  folder.Write("values.yaml", absl::StrCat("{", absl::StrJoin(values, ", "), "}\n"));
  const Ended rendered = Template(
      absl::StrCat("--show-only templates/pools.yaml --values ", folder.File("values.yaml"),
                   " --set model.source=hostPath --set model.hostPath.path=/srv/models",
                   " --set model.path=llama"));
  ASSERT_EQ(rendered.exit_status, 0) << rendered.output;
  const std::map<std::string, std::string> deployments = DeploymentsOf(rendered.output);
  constexpr const char* kRendered[] = {
      R"(
  annotations:
    example.com/of: PART
spec:
)",
      R"(
      schedulerName: "PART-scheduler"
      dnsPolicy: None
      dnsConfig:
        nameservers:
        - 192.0.2.1
        options:
        - name: ndots
          value: "2"
        searches:
        - PART.example
      resourceClaims:
        - name: PART-gpu
          resourceClaimTemplateName: one-gpu
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: PART-host
      initContainers:
        - image: wait
          name: PART-first
          restartPolicy: Always
          startupProbe:
            tcpSocket:
              port: 99
      containers:
        - name: PART
)",
      R"(
          resources:
            claims:
            - name: PART-gpu
)",
      R"(
            - --model=/models/llama
)",
      R"(
            - --PART-flag=1
          env:
            - name: POD_IP
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
            - name: BATON_ATTACH_TOKEN
              valueFrom: {secretKeyRef: {name: "baton-attach", key: "token"}}
            - {name: NVIDIA_VISIBLE_DEVICES, value: void}
            - name: OF_PART
              value: a
          envFrom:
            - secretRef:
                name: from-PART
          ports:
)",
      R"(
          volumeMounts:
            - name: tmp
              mountPath: /tmp
            - name: model
              mountPath: /models
              readOnly: true
            - mountPath: /PART
              name: PART-data
        - args:
          - --of=PART
          image: proxy
          lifecycle:
            preStop:
              sleep:
                seconds: 3
          name: PART-proxy
      volumes:
        - name: tmp
          emptyDir: {}
        - name: model
          hostPath:
            path: "/srv/models"
            type: Directory
        - emptyDir: {}
          name: PART-data)"};
  for (const std::string& part : parts) {
    for (const char* piece : kRendered)
      EXPECT_THAT(deployments.at(part), HasSubstr(absl::StrReplaceAll(piece, {{"PART", part}})));
  }
}

// An init container may be a proxy that the fetch needs. So the model is fetched after all other
// init containers.
TEST_F(HelmTest, TheModelIsFetchedAfterOtherInitContainers) {
  const auto deployments =
      DeploymentsOf(Template("--show-only templates/pools.yaml --set model.source=init "
                             "--set model.init.image=fetch "
                             "--set decode.extraInitContainers[0].name=proxy "
                             "--set decode.extraInitContainers[0].image=p")
                        .output);
  EXPECT_THAT(deployments.at("decode"),
              HasSubstr("\n      initContainers:\n        - image: p\n          name: proxy\n"
                        "        - name: model\n          image: fetch\n"));
  EXPECT_THAT(deployments.at("prefill"),
              HasSubstr("\n      initContainers:\n        - name: model\n"));
}

TEST_F(HelmTest, ServicesOfEveryTypeTakeWhatTheyHave) {
  const std::string services = "--show-only templates/services.yaml ";
  EXPECT_THAT(Template(services + "--set service.type=LoadBalancer --set service.nodePort=30051 "
                                  "--set service.loadBalancerClass=lb.example/internal "
                                  "--set 'service.loadBalancerSourceRanges={203.0.113.0/24,"
                                  "2001:db8::/32}' --set service.externalTrafficPolicy=Local")
                  .output,
              HasSubstr(R"(
spec:
  type: LoadBalancer
  loadBalancerClass: "lb.example/internal"
  loadBalancerSourceRanges:
    - 203.0.113.0/24
    - 2001:db8::/32
  externalTrafficPolicy: Local
  selector:
    app.kubernetes.io/name: baton
    app.kubernetes.io/instance: baton
    app.kubernetes.io/component: router
  ports:
    - name: grpc
      port: 50051
      targetPort: grpc
      nodePort: 30051
      appProtocol: kubernetes.io/h2c
    - name: http
      port: 8000
      targetPort: http
      appProtocol: http
---)"));
  EXPECT_EQ(Count(Template(services + "--set service.type=NodePort --set service.nodePort=30051 "
                                      "--set service.externalTrafficPolicy=Cluster")
                      .output,
                  "      nodePort: 30051\n"),
            1);
}

// A pod may request a GPU by a claim of dynamic resource allocation, instead of the resource of a
// device plugin.
TEST_F(HelmTest, AGpuMayComeByAClaim) {
  const auto deployments = DeploymentsOf(
      Template("--show-only templates/pools.yaml --set decode.backend=cuda "
               "--set decode.resources.claims[0].name=gpu --set decode.resourceClaims[0].name=gpu "
               "--set decode.resourceClaims[0].resourceClaimTemplateName=one-gpu")
          .output);
  EXPECT_THAT(deployments.at("decode"),
              AllOf(HasSubstr("- --backend=cuda\n"), HasSubstr("            claims:\n"),
                    Not(HasSubstr("nvidia.com/gpu: "))));
}

// Values that have a special meaning in YAML, or that look like numbers, must stay unchanged.
TEST_F(HelmTest, NamesArriveAsTheyAre) {
  const Ended named = Template(
      "--show-only templates/pools.yaml --set-string 'model.name=Llama 3: chat #1' "
      "--set-string model.path=/m/a:b --set-string 'kv.netDevice=eth0\\,mlx5_0:1' "
      "--set-string 'router.args={--a=b: c #d}' --set-string attach.existingSecret=12 "
      "--set-string nameOverride=34 --set-string image.pullSecrets={56} --set-string "
      "decode.priorityClassName=78");
  EXPECT_EQ(named.exit_status, 0) << named.output;
  EXPECT_EQ(Count(named.output, "            - '--model-name=Llama 3: chat #1'\n"), 3);
  EXPECT_EQ(Count(named.output, "            - --model=/m/a:b\n"), 3);
  EXPECT_EQ(Count(named.output, "            - --kv-net-device=eth0,mlx5_0:1\n"), 2);
  EXPECT_EQ(Count(named.output, "            - '--a=b: c #d'\n"), 1);
  EXPECT_EQ(Count(named.output, "{secretKeyRef: {name: \"12\", key: \"token\"}}\n"), 3);
  EXPECT_EQ(Count(named.output, "app.kubernetes.io/name: \"34\"\n"),
            Count(named.output, "app.kubernetes.io/name: "));
  EXPECT_EQ(Count(named.output, "- name: \"56\"\n"), 3);
  EXPECT_EQ(Count(named.output, "priorityClassName: \"78\"\n"), 1);
}

TEST_F(HelmTest, ServersListenOnEitherFamily) {
  const std::string pools = "--show-only templates/pools.yaml ";
  const std::string six = Template(pools + "--set listenAddress='[::]'").output;
  EXPECT_EQ(Count(six, "- --listen=[::]:50052\n"), 2);
  EXPECT_EQ(Count(six, "- --listen=[::]:50051\n"), 1);
  EXPECT_EQ(Count(six, "- --metrics-listen=[::]:9464\n"), 3);
  EXPECT_THAT(six, Not(HasSubstr("0.0.0.0")));
}

TEST_F(HelmTest, ChunksAreTheProgramsUnlessSaid) {
  const std::string pools = "--show-only templates/pools.yaml ";
  EXPECT_THAT(Template(pools).output, Not(HasSubstr("chunk-tokens")));
  const std::string said =
      Template(pools + "--set decode.chunkTokens=100 --set prefill.chunkTokens=1024").output;
  EXPECT_EQ(Count(said, "- --chunk-tokens=100\n"), 1);
  EXPECT_EQ(Count(said, "- --chunk-tokens=1024\n"), 1);
  for (const char* program : {"baton-prefill", "baton-decode"})
    EXPECT_TRUE(FlagsOf(program).contains("--chunk-tokens")) << program;
  // The chart refuses this value when it is rendered. Otherwise the program would refuse it after
  // the start of the pod.
  EXPECT_THAT(Template(pools + "--set prefill.chunkTokens=100").output,
              HasSubstr("prefill.chunkTokens is 100; it takes whole KV blocks, of 16 tokens each"));
  EXPECT_THAT(Template(pools + "--set prefill.chunkTokens=96 --set prefill.backend=cuda "
                               "--set prefill.gpu.count=1")
                  .output,
              HasSubstr("of 64 tokens each"));
  EXPECT_THAT(Template(pools + "--set prefill.chunkTokens=48 --set kv.blockTokens=32").output,
              HasSubstr("of 32 tokens each"));
}

TEST_F(HelmTest, APartMayHaveAnImageOfItsOwn) {
  const std::string shared(64, 'a');
  const std::string own(64, 'b');
  // Returns the images of the containers, in the order router, prefill, decode.
  const auto images = [&](const std::string& arguments) {
    const Ended rendered = Template(
        absl::StrCat("--show-only templates/pools.yaml --set image.repository=all ", arguments));
    EXPECT_EQ(rendered.exit_status, 0) << rendered.output;
    std::vector<std::string> found;
    for (absl::string_view line : absl::StrSplit(rendered.output, '\n')) {
      if (absl::ConsumePrefix(&line, "          image: ")) found.emplace_back(line);
    }
    return found;
  };
  using testing::ElementsAre;
  // The default tag is the version of the programs.
  const auto tagged = [](const char* repository) {
    return absl::StrCat(repository, ":", kVersion);
  };
  EXPECT_THAT(images(""), ElementsAre(tagged("all"), tagged("all"), tagged("all")));
  EXPECT_THAT(images("--set image.tag=t --set router.image.repository=r --set prefill.image.tag=p"),
              ElementsAre("r:t", "all:p", "all:t"));
  EXPECT_THAT(images(absl::StrCat("--set image.digest=sha256:", shared,
                                  " --set router.image.repository=r --set prefill.image.tag=p")),
              ElementsAre(tagged("r"), "all:p", "all@sha256:" + shared));
  EXPECT_THAT(images(absl::StrCat(
                  "--set image.digest=sha256:", shared, " --set router.image.digest=sha256:", own,
                  " --set decode.image.repository=d --set decode.image.digest=sha256:", own)),
              ElementsAre("all@sha256:" + own, "all@sha256:" + shared, "d@sha256:" + own));
  // A value of null counts as a value that is not set.
  EXPECT_THAT(images(absl::StrCat("--set image.digest=sha256:", shared,
                                  " --set router.image=null --set prefill.image.tag=null")),
              testing::Each("all@sha256:" + shared));
  // An init container without an image uses the image of its pod's program. The pod of `helm test`
  // and the Job that runs the load tester use the image of the routers.
  EXPECT_THAT(
      images(
          "--set model.source=init --set model.init.args={fetch} --set decode.image.repository=d"),
      ElementsAre(tagged("all"), tagged("all"), tagged("all"), tagged("all"), tagged("d"),
                  tagged("d")));
  const std::string routers = "--set router.image.repository=r --set goodput.enabled=true ";
  EXPECT_THAT(Template(routers + "--show-only templates/goodput-job.yaml").output,
              HasSubstr(absl::StrCat("\n          image: r:", kVersion, "\n")));
  EXPECT_THAT(Template(routers + "--show-only templates/tests/generate.yaml").output,
              HasSubstr(absl::StrCat("\n      image: r:", kVersion, "\n")));
}

// Kubernetes refuses rollingUpdate together with the type Recreate. The defaults of the chart set
// rollingUpdate, so the chart must leave it out if the type is Recreate.
TEST_F(HelmTest, PodsMayAllEndBeforeAnyStarts) {
  const auto deployments = DeploymentsOf(
      Template("--show-only templates/pools.yaml --set decode.strategy.type=Recreate").output);
  EXPECT_THAT(deployments.at("decode"),
              HasSubstr("\n  strategy:\n    type: Recreate\n  selector:"));
  EXPECT_THAT(deployments.at("prefill"),
              HasSubstr("\n  strategy:\n    rollingUpdate:\n      maxSurge: 1\n"
                        "      maxUnavailable: 0\n    type: RollingUpdate\n  selector:"));
}

TEST_F(HelmTest, PodsWithoutAGpuSeeNone) {
  const std::string some = Template(
                               "--show-only templates/pools.yaml --set decode.backend=cuda "
                               "--set decode.gpu.count=1")
                               .output;
  constexpr char kVoid[] = "- {name: NVIDIA_VISIBLE_DEVICES, value: void}\n";
  EXPECT_EQ(Count(some, kVoid), 2);
  const size_t decode = some.find("command: [baton-decode]");
  ASSERT_NE(decode, some.npos);
  EXPECT_THAT(some.substr(decode), AllOf(Not(HasSubstr(kVoid)), HasSubstr("nvidia.com/gpu: 1\n")));
  EXPECT_EQ(Count(Template("--set goodput.enabled=true").output, kVoid), 5);
}

TEST_F(HelmTest, AnInitContainerIsToldForWhomItFetches) {
  const std::string pools =
      Template(
          "--show-only templates/pools.yaml --set model.source=init --set model.init.image=fetch "
          "--set model.init.env[0].name=STORE --set model.init.env[0].value=s3")
          .output;
  for (const char* part : {"router", "prefill", "decode"}) {
    EXPECT_EQ(
        Count(pools,
              absl::StrCat("          env:\n            - {name: BATON_COMPONENT, value: ", part,
                           "}\n            - {name: NVIDIA_VISIBLE_DEVICES, value: void}\n         "
                           "   - name: STORE\n")),
        1)
        << part;
  }
  EXPECT_THAT(Template("").output, Not(HasSubstr("BATON_COMPONENT")));
}

TEST_F(HelmTest, MemoryAndBlocksAreNumbersOrAuto) {
  const std::string pools = "--show-only templates/pools.yaml ";
  const std::string automatic = Template(pools).output;
  EXPECT_EQ(Count(automatic, "- --kv-bytes=auto\n"), 2);
  EXPECT_EQ(Count(automatic, "- --block-tokens=auto\n"), 2);
  const std::string said = Template(pools +
                                    "--set prefill.kvMemory=3Ti --set decode.kvMemory=5Gi "
                                    "--set prefill.resources.limits.memory=8Ti "
                                    "--set decode.resources.limits.memory=8Gi "
                                    "--set kv.blockTokens=32")
                               .output;
  EXPECT_EQ(Count(said, "- --kv-bytes=3298534883328\n"), 1);
  EXPECT_EQ(Count(said, "- --kv-bytes=5368709120\n"), 1);
  EXPECT_EQ(Count(said, "- --block-tokens=32\n"), 2);
  const std::string small =
      Template(pools + "--set prefill.kvMemory=7Mi --set decode.kvMemory=900Ki").output;
  EXPECT_EQ(Count(small, "- --kv-bytes=7340032\n"), 1);
  EXPECT_EQ(Count(small, "- --kv-bytes=921600\n"), 1);
  const std::string decimal =
      Template(pools + "--set prefill.kvMemory=1.5GB --set decode.kvMemory=1gib").output;
  EXPECT_EQ(Count(decimal, "- --kv-bytes=1500000000\n"), 1);
  EXPECT_EQ(Count(decimal, "- --kv-bytes=1073741824\n"), 1);
}

TEST_F(HelmTest, KvMemoryIsWeighedAgainstTheMemoryLimit) {
  // Without a memory limit, a worker with --kv-bytes=auto would use a share of the whole node's
  // memory. So the chart sets a fixed size if there is no limit.
  const std::string pools = "--show-only templates/pools.yaml ";
  const std::string unlimited =
      Template(pools +
               "--set prefill.resources.limits=null --set decode.resources.limits.memory=3G")
          .output;
  EXPECT_EQ(Count(unlimited, "- --kv-bytes=268435456\n"), 1);
  EXPECT_EQ(Count(unlimited, "- --kv-bytes=auto\n"), 1);
  const std::string cpu_alone =
      Template(pools +
               "--set prefill.resources.limits.memory=null --set decode.backend=cuda "
               "--set decode.gpu.count=1 --set decode.resources.limits=null")
          .output;
  EXPECT_EQ(Count(cpu_alone, "- --kv-bytes=268435456\n"), 1);
  EXPECT_EQ(Count(cpu_alone, "- --kv-bytes=auto\n"), 1);

  for (const std::string limit : {"2Gi", "2147483648", "2147M", "2147483648000m", "2e9", "1.5Gi"}) {
    const Ended refused = Template(
        "--set decode.kvMemory=2Gi --set-string "
        "decode.resources.limits.memory=" +
        limit);
    EXPECT_NE(refused.exit_status, 0) << limit;
    EXPECT_THAT(refused.output, HasSubstr(absl::StrCat(
                                    "decode.kvMemory is 2Gi, and decode.resources.limits.memory ",
                                    limit, ", which has to hold the model's weights")));
  }
  for (const std::string limit : {"2Ti", "2147484k", "2.1Gi", "2200M", "3e9"}) {
    const Ended taken = Template(
        "--set decode.kvMemory=2Gi --set-string "
        "decode.resources.limits.memory=" +
        limit);
    EXPECT_EQ(taken.exit_status, 0) << limit << ": " << taken.output;
  }
  // The memory limit does not matter if decode uses a GPU, because the KV pool is then in the GPU's
  // memory.
  EXPECT_EQ(
      Template("--set decode.kvMemory=64Gi --set decode.backend=cuda --set decode.gpu.count=1")
          .exit_status,
      0);
}

TEST_F(HelmTest, NotesTellHowToSendTheFirstPrompt) {
  // `helm` shows the notes only on install, which needs a cluster. So the test renders an extra
  // object that includes the notes.
  const auto notes = [&](const std::string& arguments) {
    const Ended rendered = Template(absl::StrCat(
        "--show-only templates/extra.yaml ", arguments,
        " --set-json 'extraObjects=[{\"kind\": \"ConfigMap\", \"apiVersion\": \"v1\", \"data\": "
        "{\"notes\": \"{{ include (print $.Template.BasePath \\\"/NOTES.txt\\\") . | b64enc "
        "}}\"}}]'"));
    std::string coded;
    for (absl::string_view line : absl::StrSplit(rendered.output, '\n')) {
      if (absl::ConsumePrefix(&line, "  notes: '"))
        coded = absl::StrCat(absl::StripSuffix(line, "'"));
    }
    std::string decoded;
    EXPECT_TRUE(absl::Base64Unescape(coded, &decoded)) << rendered.output;
    return decoded;
  };
  const std::string plain = notes("--set service.port=6000 --set 'test.prompt=Say hello'");
  EXPECT_THAT(
      plain,
      AllOf(
          HasSubstr("Baton is being installed as baton in serving."),
          HasSubstr("\n  kubectl -n serving rollout status deployment/baton-router\n"),
          HasSubstr("\n  kubectl -n serving exec -it deploy/baton-router -- baton-client generate "
                    "--router=baton:6000 --timing --max-tokens=200 \"Say hello\"\n"),
          HasSubstr(
              "\n  kubectl -n serving port-forward service/baton 50051:6000\n"
              "  baton-client generate --router=127.0.0.1:50051 --max-tokens=200 \"Say hello\"\n"),
          HasSubstr(" baton.serving.svc:6000 "), HasSubstr(": helm test baton -n serving --logs\n"),
          HasSubstr(": kubectl -n serving delete pod baton-test\n")));
  EXPECT_THAT(plain, AllOf(Not(HasSubstr("hostPath")), Not(HasSubstr("NetworkPolicy")),
                           Not(HasSubstr("BATON_API_KEY")), Not(HasSubstr("Ingress"))));
  EXPECT_THAT(plain, AllOf(HasSubstr("\n  kubectl -n serving port-forward service/baton 8000:8000\n"
                                     "  curl http://127.0.0.1:8000/v1/completions -H "
                                     "'Content-Type: application/json' -d '{\"prompt\": "),
                           HasSubstr(" OPENAI_BASE_URL=http://baton.serving.svc:8000/v1 ")));
  EXPECT_THAT(notes("--set router.http.enabled=false"), Not(HasSubstr("HTTP")));
  EXPECT_THAT(
      notes("--set router.apiKeys.existingSecret=mine --set router.apiKeys.secretKey=of.us "
            "--set router.http.ingress.enabled=true --set router.http.ingress.hosts={a.example} "
            "--set router.http.ingress.tls[0].secretName=a-tls"),
      AllOf(
          HasSubstr("get secret mine -o jsonpath='{.data.of\\.us}' | base64 -d | "),
          HasSubstr("-- env BATON_API_KEY=\"$BATON_API_KEY\" baton-client generate --router=baton"),
          HasSubstr(" -H \"Authorization: Bearer $BATON_API_KEY\" -d "),
          HasSubstr("\nPrograms outside use https://a.example/v1, through the Ingress.\n")));
  EXPECT_THAT(
      notes("--set model.source=hostPath --set model.hostPath.path=/m "
            "--set networkPolicy.enabled=false --set fullnameOverride=mine"),
      AllOf(HasSubstr("exec -it deploy/mine-router -- baton-client generate --router=mine:50051"),
            HasSubstr("The model is a hostPath: namespaces that enforce the baseline"),
            HasSubstr("There is no NetworkPolicy: ")));
  const std::string fetch =
      "--set model.source=pvc --set model.pvc.claimName=models --set model.fetch.name=org/model ";
  const std::string job = Template("--show-only templates/fetch-job.yaml " + fetch).output;
  EXPECT_THAT(notes(fetch + "--set model.file=m.gguf"), HasSubstr(" org/model, file m.gguf."));
  EXPECT_THAT(notes(fetch), AllOf(HasSubstr("until a Job has fetched org/model."),
                                  HasSubstr("\n  kubectl -n serving logs -f job/" +
                                            job.substr(job.find("baton-fetch-"), 20) + "\n")));
  // baton-client must have the flags that the commands in the notes use.
  const std::set<std::string> known = FlagsOf("baton-client");
  EXPECT_TRUE(known.contains("--router") && known.contains("--timing"));
}

TEST_F(HelmTest, GraceCoversTheDrain) {
  const Ended rendered = Template(
      "--show-only templates/pools.yaml --set router.maxConnectionAgeSeconds=30 "
      "--set router.drain.graceSeconds=100 --set decode.drain.preStopSeconds=0 "
      "--set service.direct=false "
      "--set decode.drain.graceSeconds=7");
  // Routers: with a max connection age of 30 s, the preStop hook sleeps for 1.2 * 30 + 5 s. The
  // grace period of the pod is that time, plus 100 s for the drain, plus 10 s.
  EXPECT_THAT(rendered.output, AllOf(HasSubstr("command: [sleep, \"41\"]"),
                                     HasSubstr("terminationGracePeriodSeconds: 151")));
  EXPECT_THAT(rendered.output, HasSubstr("terminationGracePeriodSeconds: 17\n"));
  EXPECT_THAT(rendered.output, Not(HasSubstr("[sleep, \"0\"]")));
}

// A router becomes ready only after the workers. So its progress deadline must cover the start of
// the workers.
TEST_F(HelmTest, RolloutsAreNotGivenUpWhileWorkersMayStart) {
  const std::string pools = "--show-only templates/pools.yaml ";
  EXPECT_EQ(Count(Template(pools).output, "\n  progressDeadlineSeconds: 2400\n"), 3);
  const auto deployments = DeploymentsOf(
      Template(pools +
               "--set decode.probes.startup.periodSeconds=4 --set decode.minReadySeconds=7 "
               "--set prefill.probes.startup.initialDelaySeconds=100 --set model.source=init "
               "--set model.init.command={fetch}")
          .output);
  EXPECT_THAT(deployments.at("router"), HasSubstr("\n  progressDeadlineSeconds: 6000\n"));
  EXPECT_THAT(deployments.at("prefill"), HasSubstr("\n  progressDeadlineSeconds: 6000\n"));
  EXPECT_THAT(deployments.at("decode"), HasSubstr("\n  progressDeadlineSeconds: 6007\n"));
}

TEST_F(HelmTest, AutoscalingThatIsSwitchedOnBeginsWithWhatRuns) {
  const auto rendered_with = [&](const std::string& running, const std::string& autoscaler) {
    const Ended rendered = TemplateWhere(
        "_pool.tpl",
        {{"lookup \"apps/v1\" \"Deployment\" .root.Release.Namespace $name", running},
         {"lookup \"autoscaling/v2\" \"HorizontalPodAutoscaler\" .root.Release.Namespace $name",
          autoscaler}},
        "--show-only templates/pools.yaml --set decode.autoscaling.enabled=true");
    EXPECT_EQ(rendered.exit_status, 0) << rendered.output;
    return DeploymentsOf(rendered.output).at("decode");
  };
  const auto writes = [](int replicas) {
    return AllOf(HasSubstr(absl::StrCat("\nspec:\n  replicas: ", replicas, "\n")),
                 HasSubstr("\n  annotations:\n    baton/autoscaled-later: \"true\"\n"));
  };
  const auto leaves_it =
      AllOf(Not(HasSubstr("\n  replicas: ")), Not(HasSubstr("autoscaled-later")));
  constexpr char kEight[] = R"({"metadata": {"name": "d"}, "spec": {"replicas": 8}})";
  constexpr char kMarked[] = R"({"metadata": {"annotations": {"baton/autoscaled-later": "true"}},
                                 "spec": {"replicas": 11}})";
  constexpr char kNone[] = R"({"metadata": {"name": "d"}, "spec": {"replicas": 0}})";
  constexpr char kAutoscaled[] = R"({"metadata": {"name": "d"}})";
  EXPECT_THAT(rendered_with(kEight, "{}"), writes(8)) << "the upgrade that switches it on";
  EXPECT_THAT(rendered_with(kMarked, kAutoscaled), writes(11)) << "one after that";
  EXPECT_THAT(rendered_with(kEight, kAutoscaled), leaves_it) << "never had a number";
  EXPECT_THAT(rendered_with(kNone, "{}"), leaves_it) << "an autoscaler leaves none alone";
  EXPECT_THAT(rendered_with("{}", "{}"), leaves_it) << "an install";
}

TEST_F(HelmTest, TheTestExpectsTheGoldenTokensOfTheDemoModel) {
  const json golden = json::parse(Read(BATON_SOURCE_DIR "/common/model/demo/golden.json"));
  const json& first = golden["cases"][0];
  const std::string ids = absl::StrJoin(first["greedy"].get<std::vector<int>>(), ",");
  const std::string test = "--show-only templates/tests/generate.yaml ";
  EXPECT_THAT(Template(test).output,
              AllOf(HasSubstr(absl::StrCat("name: WANT_IDS, value: \"", ids, "\"")),
                    HasSubstr(first["prompt"].get<std::string>())));
  // The chart knows the first 48 tokens of the demo model's answer. For longer answers it has no
  // expected tokens.
  EXPECT_THAT(Template(test + "--set test.maxTokens=48").output, HasSubstr(ids));
  EXPECT_THAT(Template(test + "--set test.maxTokens=49").output,
              HasSubstr("name: WANT_IDS, value: \"\""));
  // The chart knows only the demo model's answer. For another model, `helm test` only checks that
  // two answers are equal, unless the values set expected tokens.
  EXPECT_THAT(Template(test + "--set model.path=/models/x").output,
              HasSubstr("name: WANT_IDS, value: \"\""));
  EXPECT_THAT(Template(test + "--set test.expectedTokenIds='{1,23}'").output,
              HasSubstr("name: WANT_IDS, value: \"1,23\""));
}

// In router.mode `auto`, a decode worker computes a short prompt by itself, and there is no
// transfer to check. So `helm test` asks for the mode disaggregated.
TEST_F(HelmTest, TheTestIsSplitWhereverPromptsCanBe) {
  const std::string test = "--show-only templates/tests/generate.yaml ";
  const auto splits = testing::AllOf(HasSubstr("\"$MAX_TOKENS\" --mode=disaggregated --json"),
                                     HasSubstr("name: WANT_LABELS, value: \"yes\""));
  const auto does_not =
      testing::AllOf(HasSubstr("\"$MAX_TOKENS\" --json"), Not(HasSubstr("--mode")),
                     HasSubstr("name: WANT_LABELS, value: \"\""));
  EXPECT_THAT(Template(test).output, splits);
  EXPECT_THAT(Template(test + "--set router.mode=auto").output, splits);
  EXPECT_THAT(Template(test + "--set router.mode=auto --set prefill.replicas=0 "
                              "--set prefill.autoscaling.enabled=true")
                  .output,
              splits);
  EXPECT_THAT(Template(test + "--set router.mode=auto --set prefill.replicas=0").output, does_not);
  EXPECT_THAT(Template(test + "--set router.mode=colocated").output, does_not);
  EXPECT_TRUE(FlagsOf("baton-client").contains("--mode"));
}

// The hook must not have the policy hook-succeeded: `helm test --logs` would delete the pod before
// it reads the pod's log, and fail.
TEST_F(HelmTest, TheTestLeavesItsPodForItsLog) {
  EXPECT_EQ(Count(Template("--show-only templates/tests/generate.yaml").output,
                  "\n    helm.sh/hook-delete-policy: before-hook-creation\n"),
            1);
}

TEST_F(HelmTest, TheTestFitsIntoQuotasAndOntoNodes) {
  const std::string test = "--show-only templates/tests/generate.yaml ";
  EXPECT_THAT(Template(test).output, AllOf(HasSubstr(R"(
      resources:
        limits:
          cpu: 500m
          memory: 256Mi
        requests:
          cpu: 50m
          memory: 64Mi
)"),
                                           HasSubstr("\n  activeDeadlineSeconds: 240\n")));
  EXPECT_THAT(Template(test + "--set test.nodeSelector.pool=cpu --set test.tolerations[0].key=t "
                              "--set test.resources.requests.cpu=7m")
                  .output,
              AllOf(HasSubstr("\n  nodeSelector:\n    pool: cpu\n"),
                    HasSubstr("\n  tolerations:\n    - key: t\n"), HasSubstr("cpu: 7m\n")));
  EXPECT_THAT(Template(test + "--set test.timeoutSeconds=1000").output,
              AllOf(HasSubstr("\n  activeDeadlineSeconds: 1000\n"),
                    HasSubstr("baton-client wait --router=\"$ROUTER\" --timeout=500s "),
                    HasSubstr("baton-client generate --router=\"$ROUTER\" --timeout=142s "),
                    HasSubstr("timeout 142 bash -c ")));
}

TEST_F(HelmTest, TheLoadRunsOnlyWhenAskedAndLeavesItsReport) {
  EXPECT_THAT(Template("").output, Not(HasSubstr("kind: Job")));
  const std::string job = "--show-only templates/goodput-job.yaml --set goodput.enabled=true ";
  EXPECT_THAT(Template(job + "--set goodput.args='{--rate=7,--slo=/etc/goodput/mine.json}' "
                             "--set goodput.files.mine\\\\.json=x")
                  .output,
              AllOf(HasSubstr("baton-goodput run --endpoint=\"$ROUTER\" --out=/report/run.json"),
                    HasSubstr("- --rate=7\n"), HasSubstr("mountPath: /etc/goodput"),
                    HasSubstr("mine.json: x"), HasSubstr("cat /report/run.json")));
  EXPECT_THAT(Template(job + "--set goodput.report.claimName=reports").output,
              AllOf(HasSubstr("persistentVolumeClaim: {claimName: \"reports\"}"),
                    Not(HasSubstr("cat /report/run.json"))));
}

TEST_F(HelmTest, AJobFillsTheClaimAndPodsWaitForIt) {
  const std::string fetch =
      "--set model.source=pvc --set model.path=chat --set model.fetch.name=org/model "
      "--set model.fetch.revision=v1.0 ";
  const std::string own =
      fetch + "--set model.pvc.create.enabled=true --set model.pvc.create.size=40Gi ";
  EXPECT_THAT(Template("--show-only templates/model-claim.yaml " + own +
                       "--set model.pvc.create.storageClassName=fast")
                  .output,
              AllOf(HasSubstr("\n  name: \"baton-model\"\n"),
                    HasSubstr("\n    helm.sh/resource-policy: keep\n"),
                    HasSubstr("\n    - ReadWriteOnce\n  storageClassName: \"fast\"\n"),
                    HasSubstr("\n      storage: \"40Gi\"\n")));
  const std::string job = Template("--show-only templates/fetch-job.yaml " + own +
                                   "--set model.fetch.tokenSecret.name=hub "
                                   "--set model.fetch.args={--attempts=3} "
                                   "--set model.fetch.endpoint=https://hub.example")
                              .output;
  EXPECT_THAT(job, AllOf(HasSubstr(R"(
          command: [baton-fetch]
          args:
            - "org/model"
            - "--to=/models/chat"
            - "--revision=v1.0"
            - "--endpoint=https://hub.example"
            - --attempts=3
)"),
                         HasSubstr("\n            - name: HF_TOKEN\n              valueFrom: "
                                   "{secretKeyRef: {name: \"hub\", key: \"token\"}}\n"),
                         HasSubstr("\n          terminationMessagePolicy: FallbackToLogsOnError\n"),
                         HasSubstr("persistentVolumeClaim: {claimName: \"baton-model\"}")));
  const std::set<std::string> known = FlagsOf("baton-fetch");
  for (const char* flag : {"--to", "--revision", "--endpoint", "--attempts"})
    EXPECT_TRUE(known.contains(flag)) << flag;
  // A Job can't be changed after it was made. So other values must give the Job another name, and
  // equal values must give it the same name.
  const auto name = [](const std::string& manifest) {
    return manifest.substr(manifest.find("  name: baton-fetch-"), 28);
  };
  const std::string claimed =
      "--show-only templates/fetch-job.yaml " + fetch + "--set model.pvc.claimName=models ";
  const std::string again = name(Template(claimed).output);
  EXPECT_EQ(again, name(Template(claimed + "--set decode.replicas=2").output));
  EXPECT_NE(again, name(Template(claimed + "--set model.fetch.revision=v2").output));
  const std::string pools = Template("--show-only templates/pools.yaml " + own).output;
  EXPECT_EQ(Count(pools, "            claimName: \"baton-model\"\n            readOnly: false\n"),
            3);
  EXPECT_EQ(Count(pools, "{name: COMPLETE, value: \"/models/chat/.baton-fetch.json\"}"), 3);
  EXPECT_EQ(Count(pools, "              mountPath: /models\n              readOnly: true\n"), 6);
  EXPECT_EQ(Count(pools, "\n  progressDeadlineSeconds: 4200\n"), 3);
  EXPECT_THAT(Template("--set model.source=pvc --set model.pvc.claimName=models").output,
              AllOf(Not(HasSubstr("fetch")), HasSubstr("            readOnly: true\n"),
                    Not(HasSubstr("kind: PersistentVolumeClaim"))));
}

TEST_F(HelmTest, AGgufFileIsServedFromWhereItLies) {
  for (const auto& [values, model] : std::vector<std::pair<std::string, std::string>>{
           {"--set model.path=/srv", "/srv/m-Q4.gguf"},
           {"--set model.source=pvc --set model.pvc.claimName=c", "/models/m-Q4.gguf"},
           {"--set model.source=pvc --set model.pvc.claimName=c --set model.path=chat",
            "/models/chat/m-Q4.gguf"},
           {"--set model.source=hostPath --set model.hostPath.path=/m --set model.path=chat/",
            "/models/chat/m-Q4.gguf"},
           {"--set model.source=init --set model.init.image=fetch", "/models/m-Q4.gguf"}}) {
    const std::string pools =
        Template("--show-only templates/pools.yaml --set model.file=m-Q4.gguf " + values).output;
    EXPECT_EQ(Count(pools, absl::StrCat("\n            - --model=", model, "\n")), 3)
        << values << "\n"
        << pools;
  }
  // The Job fetches only the file, and pods wait for this file.
  const std::string fetch =
      "--set model.source=pvc --set model.pvc.claimName=c --set model.path=chat "
      "--set model.fetch.name=org/model --set model.file=f16/m-00001-of-00002.gguf ";
  EXPECT_THAT(Template("--show-only templates/fetch-job.yaml " + fetch).output, HasSubstr(R"(
            - "org/model"
            - "f16/m-00001-of-00002.gguf"
            - "--to=/models/chat"
)"));
  const std::string pools = Template("--show-only templates/pools.yaml " + fetch).output;
  EXPECT_EQ(Count(pools, "\n            - --model=/models/chat/f16/m-00001-of-00002.gguf\n"), 3);
  EXPECT_EQ(Count(pools, "{name: FILE, value: \"f16/m-00001-of-00002.gguf\"}"), 3);
  EXPECT_EQ(Count(pools, "{name: COMPLETE, value: \"/models/chat/.baton-fetch.json\"}"), 3);
}

TEST_F(HelmTest, DashboardAndAlertsAreTheFiles) {
  EXPECT_THAT(Template("").output,
              AllOf(Not(HasSubstr("kind: PrometheusRule")), Not(HasSubstr("-dashboard"))));
  const std::string enabled =
      "--set metrics.dashboard.enabled=true --set metrics.dashboard.namespace=grafana "
      "--set metrics.rules.enabled=true --set metrics.rules.labels.release=prometheus ";
  const auto indented = [](const fs::path& file, absl::string_view by) {
    const std::string whole = Read(file);
    std::string text;
    for (absl::string_view line : absl::StrSplit(absl::StripTrailingAsciiWhitespace(whole), '\n'))
      absl::StrAppend(&text, by, line, "\n");
    return text;
  };
  EXPECT_THAT(Template("--show-only templates/dashboard.yaml " + enabled).output,
              AllOf(HasSubstr("\n  name: baton-dashboard\n  namespace: \"grafana\"\n"),
                    HasSubstr("\n    grafana_dashboard: \"1\"\n"),
                    HasSubstr("\ndata:\n  baton.json: |\n" +
                              indented(kChart / "dashboards/baton.json", "    "))));
  EXPECT_THAT(Template("--show-only templates/prometheusrule.yaml " + enabled).output,
              AllOf(HasSubstr("\n    release: prometheus\n"),
                    HasSubstr("\nspec:\n" + indented(kChart / "rules/baton.yaml", "  "))));
  EXPECT_THAT(Template(enabled + "--set metrics.enabled=false").output,
              AllOf(Not(HasSubstr("kind: PrometheusRule")), Not(HasSubstr("-dashboard"))));
}

TEST_F(HelmTest, TheTokenIsLongAndNeverTheSameTwice) {
  const std::string secret = "--show-only templates/attach-secret.yaml";
  const std::string one = Template(secret).output;
  EXPECT_NE(one, Template(secret).output);
  const size_t at = one.find("token: ");
  ASSERT_NE(at, one.npos) << one;
  EXPECT_GE(one.substr(at).size(), 64u);
}

TEST_F(HelmTest, ASecretWithoutAUsableTokenIsRefused) {
  const auto with = [&](const std::string& secret) {
    return TemplateWhere(
        "attach-secret.yaml",
        {{"lookup \"v1\" \"Secret\" .Release.Namespace .Values.attach.existingSecret", secret}},
        "--set attach.existingSecret=mine --set attach.secretKey=t.1");
  };
  const auto holding = [](const std::string& token) {
    return absl::StrCat(R"({"data": {"t.1": ")", absl::Base64Escape(token), R"("}})");
  };
  for (const char* token : {"", "a\n", "\n", "a b", "\xc3\xa4"}) {
    const Ended refused = with(holding(token));
    EXPECT_NE(refused.exit_status, 0) << token;
    EXPECT_THAT(refused.output, HasSubstr("'t.1' of the Secret 'mine' is empty, or has a space"));
  }
  EXPECT_EQ(with(holding("a-Token~!")).exit_status, 0);
  EXPECT_EQ(with("{}").exit_status, 0) << "it is not there yet";
  EXPECT_EQ(with(R"({"data": {"other": ""}})").exit_status, 0) << "nor is what is in it";
  // If the chart's own Secret holds no token, the chart makes a new one.
  const std::string own = "lookup \"v1\" \"Secret\" .Release.Namespace $name";
  const std::string show = "--show-only templates/attach-secret.yaml";
  EXPECT_THAT(
      TemplateWhere("attach-secret.yaml", {{own, R"({"data": {"token": "YQ=="}})"}}, show).output,
      HasSubstr("\n  token: YQ==\n"));
  EXPECT_THAT(
      TemplateWhere("attach-secret.yaml", {{own, R"({"data": {"token": ""}})"}}, show).output,
      testing::ContainsRegex("\n  token: [A-Za-z0-9]{64}"));
}

}  // namespace
}  // namespace baton
