// Tests of the chart's schema, which decides which values the chart accepts.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "tests/helm/helm_harness.h"

namespace baton {
namespace {

using nlohmann::json;
using testing::HasSubstr;

using HelmSchemaTest = HelmTest;

TEST_F(HelmSchemaTest, WhatTheSchemaRefusesIsNamed) {
  // All mistakes go into one call of helm, because helm reports all of them and each start takes
  // time.
  const std::vector<std::pair<std::string, std::vector<std::string>>> mistakes = {
      {"colour=red", {"colour"}},
      {"router.replica=2", {"/router", "replica"}},
      {"prefill.kvMemory=12", {"/prefill/kvMemory", "string"}},
      {"decode.kvMemory=12Gig", {"/decode/kvMemory", "12Gig"}},
      {"decode.gpus=1", {"/decode", "gpus"}},
      {"decode.gpu.cuont=1", {"/decode/gpu", "cuont"}},
      {"router.gpu.count=1", {"/router", "gpu"}},
      {"prefill.mode=auto", {"/prefill", "mode"}},
      {"router.mode=both", {"/router/mode", "disaggregated"}},
      {"router.http.prot=1", {"/router/http", "prot"}},
      {"router.http.port=0", {"/router/http/port"}},
      {"router.http.allowOrigin=a b", {"/router/http/allowOrigin", "a b"}},
      {"router.http.unknownFields=log", {"/router/http/unknownFields", "'ignore', 'refuse'"}},
      {"router.http.ingress.class=a", {"/router/http/ingress", "class"}},
      {"router.http.ingress.hosts={My_Host}", {"/router/http/ingress/hosts/0", "My_Host"}},
      {"router.http.ingress.paths={v1}", {"/router/http/ingress/paths/0", "v1"}},
      {"router.http.ingress.tls[0].secret=a", {"/router/http/ingress/tls/0", "secret"}},
      {"router.apiKeys.existingSecret=My_Keys", {"/router/apiKeys/existingSecret", "My_Keys"}},
      {"router.apiKeys.keys={a}", {"/router/apiKeys", "keys"}},
      {"decode.http.port=1", {"/decode", "http"}},
      {"router.policy=random", {"/router/policy", "'prefix', 'least-loaded', 'round-robin'"}},
      {"router.drain.grace=3", {"/router/drain", "grace"}},
      {"router.resources.limit.cpu=3", {"/router/resources", "limit"}},
      {"router.probes.readiness.period=3", {"/router/probes/readiness", "period"}},
      {"router.port=0", {"/router/port", "1"}},
      {"router.replicas=-1", {"/router/replicas"}},
      {"router.env=x", {"/router/env", "array"}},
      {"model.source=hub", {"/model/source", "hostPath"}},
      {"model.file=Q4_K_M", {"/model/file", "Q4_K_M"}},
      {"model.pvc.claim=x", {"/model/pvc", "claim"}},
      {"model.pvc.create.size=many", {"/model/pvc/create/size", "many"}},
      {"model.fetch.name=a/b/c", {"/model/fetch/name", "a/b/c"}},
      {"model.fetch.endpoint=hub", {"/model/fetch/endpoint", "hub"}},
      {"attach.token=a b", {"/attach/token"}},
      {"kv.transport=tcp", {"/kv", "transport"}},
      {"kv.blockTokens=2000", {"/kv/blockTokens"}},
      {"image.digest=sha256:12", {"/image/digest"}},
      {"networkPolicy.enabled=maybe", {"/networkPolicy/enabled", "boolean"}},
      {"metrics.podMonitor.intervall=1s", {"/metrics/podMonitor", "intervall"}},
      {"metrics.dashboard.label.a=b", {"/metrics/dashboard", "label"}},
      {"metrics.rules.enable=true", {"/metrics/rules", "enable"}},
      {"log.level=warning", {"/log/level", "warn"}},
      {"test.expectedTokenIds={a}", {"/test/expectedTokenIds/0"}},
      {"goodput.arg={a}", {"/goodput", "arg"}},
      {"test.resources.limit.cpu=3", {"/test/resources", "limit"}},
      {"decode.backend=cuda-emulated", {"/decode/backend", "'cpu', 'cuda'"}},
      {"prefill.backend=fake", {"/prefill/backend"}},
      {"decode.chunkTokens=-1", {"/decode/chunkTokens"}},
      {"router.chunkTokens=16", {"/router", "chunkTokens"}},
      {"listenAddress=localhost", {"/listenAddress", "[::]"}},
      {"numerics=fast", {"/numerics", "avx512-bf16"}},
      {"prefill.tolerations[0].effect=NoSchedul", {"/prefill/tolerations/0/effect", "NoExecute"}},
      // The schema must refuse null, for which the chart would use 0.
      {"decode.replicas=null", {"/decode'", "missing property 'replicas'"}},
      {"prefill.drain.graceSeconds=null", {"/prefill/drain'", "missing property 'graceSeconds'"}},
      {"fullnameOverride=My_Baton", {"/fullnameOverride", "My_Baton"}},
      {"nameOverride=chat-", {"/nameOverride", "chat-"}},
      {"attach.existingSecret=My_Secret", {"/attach/existingSecret", "My_Secret"}},
      {"attach.secretKey=a/b", {"/attach/secretKey", "a/b"}},
      {"model.pvc.claimName=models/llama", {"/model/pvc/claimName", "models/llama"}},
      {"service.nodePort=70000", {"/service/nodePort", "want 65,535"}},
      {"service.loadBalancerSourceRanges={203.0.113.0}",
       {"/service/loadBalancerSourceRanges/0", "203.0.113.0"}},
      {"service.loadBalancerClass=a b", {"/service/loadBalancerClass", "a b"}},
      {"service.externalTrafficPolicy=local", {"/service/externalTrafficPolicy", "Local"}},
      {"router.schedulerName=My Scheduler", {"/router/schedulerName", "My Scheduler"}},
      {"prefill.dnsPolicy=Cluster", {"/prefill/dnsPolicy", "ClusterFirst"}},
      {"decode.extraContainers[0].name=a", {"/decode/extraContainers/0", "'image'"}},
      {"decode.extraInitContainers[0].restartPolicy=Never",
       {"/decode/extraInitContainers/0/restartPolicy", "Always"}},
      // The chart itself sets the labels name and component, by which it selects its pods. So
      // values must not set them.
      {R"(commonLabels.app\.kubernetes\.io/component=llm)",
       {"/commonLabels/app.kubernetes.io~1component"}},
      {R"(decode.podLabels.app\.kubernetes\.io/name=llm)",
       {"/decode/podLabels/app.kubernetes.io~1name"}},
  };
  std::string sets;
  for (const auto& [set, names] : mistakes) absl::StrAppend(&sets, " --set '", set, "'");
  const Ended refused = Template(sets);
  EXPECT_NE(refused.exit_status, 0);
  for (const auto& [set, names] : mistakes) {
    for (const std::string& name : names) EXPECT_THAT(refused.output, HasSubstr(name)) << set;
  }
  EXPECT_NE(Template("--set router.replica=2").exit_status, 0);
}

TEST_F(HelmSchemaTest, MisspeltKeysOfKubernetesOwnTypesAreNamed) {
  struct Misspelt {
    const char* set;
    const char* at;
    const char* key;
  };
  constexpr Misspelt kMisspelt[] = {
      {"router.podSecurityContext.runAsNonroot=true", "/router/podSecurityContext", "runAsNonroot"},
      {"decode.podSecurityContext.seccompProfile.typ=a",
       "/decode/podSecurityContext/seccompProfile", "typ"},
      {"decode.securityContext.priviledged=false", "/decode/securityContext", "priviledged"},
      {"decode.securityContext.capabilities.dropp={ALL}", "/decode/securityContext/capabilities",
       "dropp"},
      {"router.tolerations[0].efect=NoSchedule", "/router/tolerations/0", "efect"},
      {"goodput.tolerations[0].kei=a", "/goodput/tolerations/0", "kei"},
      {"prefill.env[0].valeu=1", "/prefill/env/0", "valeu"},
      {"decode.env[0].valueFrom.secretRef.name=a", "/decode/env/0/valueFrom", "secretRef"},
      {"decode.envFrom[0].secretref.name=a", "/decode/envFrom/0", "secretref"},
      {"model.init.env[0].naem=a", "/model/init/env/0", "naem"},
      {"model.init.envFrom[0].configMap.name=a", "/model/init/envFrom/0", "configMap"},
      {"prefill.volumeMounts[0].path=/a", "/prefill/volumeMounts/0", "path"},
      {"prefill.volumes[0].emptydir.medium=Memory", "/prefill/volumes/0", "emptydir"},
      {"decode.volumes[0].emptyDir.size=1Gi", "/decode/volumes/0/emptyDir", "size"},
      {"router.affinity.podAntiaffinity.a=b", "/router/affinity", "podAntiaffinity"},
      {"decode.affinity.nodeAffinity.required=b", "/decode/affinity/nodeAffinity", "required"},
      {"prefill.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topology=b",
       "/prefill/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0",
       "topology"},
      {"router.topologySpreadConstraints[0].maxskew=1", "/router/topologySpreadConstraints/0",
       "maxskew"},
      {"router.image.pullPolicy=Never", "/router/image", "pullPolicy"},
      {"networkPolicy.clients[0].podSelectors.a=b", "/networkPolicy/clients/0", "podSelectors"},
      {"networkPolicy.dns[0].ports=b", "/networkPolicy/dns/0", "ports"},
      {"networkPolicy.egressTo[0].from[0].a=b", "/networkPolicy/egressTo/0", "from"},
      {"networkPolicy.egressTo[0].ports[0].prot=TCP", "/networkPolicy/egressTo/0/ports/0", "prot"},
      {"networkPolicy.egressTo[0].to[0].ipBlock.cdir=b", "/networkPolicy/egressTo/0/to/0/ipBlock",
       "cdir"},
      {"networkPolicy.scrapers[0].namespaceSelector.matchLabel.a=b",
       "/networkPolicy/scrapers/0/namespaceSelector", "matchLabel"},
      {"decode.autoscaling.metrics[0].pod.a=b", "/decode/autoscaling/metrics/0", "pod"},
      {"decode.autoscaling.behavior.scaledown.a=b", "/decode/autoscaling/behavior", "scaledown"},
      {"prefill.autoscaling.behavior.scaleUp.windowSeconds=3",
       "/prefill/autoscaling/behavior/scaleUp", "windowSeconds"},
      {"prefill.resources.claims[0].nam=a", "/prefill/resources/claims/0", "nam"},
      {"router.resourceClaims[0].resourceClaim=a", "/router/resourceClaims/0", "resourceClaim"},
      {"router.dnsConfig.nameserver=a", "/router/dnsConfig", "nameserver"},
      {"prefill.dnsConfig.options[0].nam=a", "/prefill/dnsConfig/options/0", "nam"},
      {"decode.extraContainers[0].comand={a}", "/decode/extraContainers/0", "comand"},
      {"decode.extraInitContainers[0].ports[0].port=1", "/decode/extraInitContainers/0/ports/0",
       "port"},
      {"router.extraContainers[0].livenessProbe.http=1", "/router/extraContainers/0/livenessProbe",
       "http"},
      {"router.extraContainers[0].readinessProbe.httpGet.url=1",
       "/router/extraContainers/0/readinessProbe/httpGet", "url"},
      {"router.extraContainers[0].lifecycle.preStop.http=1",
       "/router/extraContainers/0/lifecycle/preStop", "http"},
  };
  std::string sets;
  for (const auto& [set, at, key] : kMisspelt) absl::StrAppend(&sets, " --set '", set, "'");
  const Ended refused = Template(sets);
  EXPECT_NE(refused.exit_status, 0);
  for (const auto& [set, at, key] : kMisspelt) {
    EXPECT_THAT(refused.output, HasSubstr(absl::StrCat("at '", at, "': additional properties '",
                                                       key, "' not allowed")))
        << set;
  }
}

// Returns the paths of the schema that may accept any key or any value. They are Kubernetes types
// that are too deep to repeat in the schema, whole manifests, and global values.
const std::set<std::string>& FreeObjects() {
  static const auto* free = [] {
    auto* paths = new std::set<std::string>{"/properties/global", "/properties/extraObjects/items"};
    for (const char* source : {"azureFile", "cephfs", "configMap", "csi", "downwardAPI",
                               "ephemeral", "fc", "iscsi", "projected", "rbd", "secret"}) {
      paths->insert(absl::StrCat("/$defs/volume/properties/", source));
    }
    return paths;
  }();
  return *free;
}

// Adds to `loose` every path of a schema that accepts any key or any value. `path` is the path of
// `schema` itself.
void FindLoose(const json& schema, const std::string& path, std::set<std::string>* loose) {
  const auto is = [&](const char* type) {
    if (!schema.contains("type")) return false;
    const json& types = schema["type"];
    return types == type ||
           (types.is_array() && std::find(types.begin(), types.end(), json(type)) != types.end());
  };
  const auto each = [&](const char* under) {
    if (!schema.contains(under)) return;
    for (const auto& [key, value] : schema[under].items())
      FindLoose(value, absl::StrCat(path, "/", under, "/", key), loose);
  };
  const auto one = [&](const char* under) {
    if (!schema.contains(under) || schema[under] == json(false)) return false;
    FindLoose(schema[under], absl::StrCat(path, "/", under), loose);
    return true;
  };
  each("properties");
  each("$defs");
  each("anyOf");
  const bool says = schema.is_object() && (schema.contains("type") || schema.contains("enum") ||
                                           schema.contains("const") || schema.contains("$ref") ||
                                           schema.contains("anyOf"));
  const bool object = is("object") || (schema.is_object() && schema.contains("properties"));
  const bool named = schema.contains("properties") && schema.contains("additionalProperties") &&
                     schema["additionalProperties"] == json(false);
  const bool map = !schema.contains("properties") && one("additionalProperties");
  const bool list = !is("array") || one("items");
  if (!says || !list || (object && !named && !map)) loose->insert(path);
}

TEST(SchemaFileTest, IsStrictEverywhere) {
  const json schema = json::parse(Read(kChart / "values.schema.json"));
  EXPECT_GT(schema["properties"].size(), 15u);
  std::set<std::string> loose;
  FindLoose(schema, "", &loose);
  EXPECT_EQ(loose, FreeObjects());
  // Tests FindLoose, the function that lists the parts of a schema that accept any key or value.
  loose.clear();
  FindLoose(json::parse(R"({"properties": {
      "bare": {"type": "object"}, "any": {}, "true": true, "list": {"type": "array"},
      "of": {"type": "array", "items": {"type": "object"}},
      "map": {"type": "object", "additionalProperties": {}},
      "open": {"type": "object", "properties": {"a": {"type": "string"}}},
      "either": {"anyOf": [{"type": "string"}, {"type": ["object", "null"]}]},
      "fine": {"type": "object", "additionalProperties": {"type": "string"}}}})"),
            "", &loose);
  EXPECT_THAT(loose, testing::ElementsAre(
                         "", "/properties/any", "/properties/bare", "/properties/either/anyOf/1",
                         "/properties/list", "/properties/map/additionalProperties",
                         "/properties/of/items", "/properties/open", "/properties/true"));
}

// The schema must accept the same backends and numerics as the programs.
TEST(SchemaFileTest, NamesTheBackendsAndNumericsOfTheWorkers) {
  const json schema = json::parse(Read(kChart / "values.schema.json"));
  const Ended backend =
      RunShell(BATON_BINARY_DIR "/baton-decode --routers=127.0.0.1:1 --model=/none --backend=x");
  EXPECT_THAT(backend.output, HasSubstr("it takes cpu or cuda\n"));
  EXPECT_EQ(schema["$defs"]["worker"]["properties"]["backend"]["enum"],
            json::parse(R"(["", "cpu", "cuda"])"));
  const Ended numerics =
      RunShell(BATON_BINARY_DIR "/baton-decode --routers=127.0.0.1:1 --model=/none --numerics=x");
  EXPECT_THAT(numerics.output,
              HasSubstr("'x' is not one of auto, portable, f32, amx, avx512-bf16 and q8"));
  EXPECT_EQ(schema["properties"]["numerics"]["enum"],
            json::parse(R"(["auto", "portable", "f32", "amx", "avx512-bf16", "q8"])"));
}

TEST(SchemaFileTest, NamesThePoliciesOfTheRouter) {
  const json schema = json::parse(Read(kChart / "values.schema.json"));
  const Ended policy =
      RunShell(BATON_BINARY_DIR "/baton-router --listen=127.0.0.1:0 --model=/none --policy=x");
  EXPECT_THAT(policy.output, HasSubstr("it takes prefix, least-loaded or round-robin\n"));
  EXPECT_EQ(schema["properties"]["router"]["properties"]["policy"]["enum"],
            json::parse(R"(["prefix", "least-loaded", "round-robin"])"));
}

// The chart and the programs are released together, so they have the same version.
TEST(SchemaFileTest, TheChartNamesTheVersionOfThePrograms) {
  const Ended version = RunShell(BATON_BINARY_DIR "/baton-router --version");
  const std::string number =
      std::string(absl::StripAsciiWhitespace(version.output.substr(version.output.rfind(' '))));
  EXPECT_THAT(Read(kChart / "Chart.yaml"), HasSubstr(absl::StrCat("appVersion: \"", number, "\"")));
}

}  // namespace
}  // namespace baton
