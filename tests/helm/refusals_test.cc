// Tests of values that the schema accepts one by one, but that could not run or serve together. The
// chart refuses them with an error that names the values and says what to do.

#include <string>

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/helm/helm_harness.h"

namespace baton {
namespace {

using testing::HasSubstr;

class HelmRefusalTest : public HelmTest {
 protected:
  void ExpectRefused(const std::string& arguments, const std::string& words) const {
    const Ended refused = Template(arguments);
    EXPECT_NE(refused.exit_status, 0) << arguments;
    EXPECT_THAT(refused.output, HasSubstr(words)) << arguments;
  }
  void ExpectTaken(const std::string& arguments) const {
    const Ended taken = Template(arguments);
    EXPECT_EQ(taken.exit_status, 0) << arguments << ": " << taken.output;
  }
};

TEST_F(HelmRefusalTest, ARolloutMustBeAbleToReplaceAPod) {
  ExpectRefused("--set router.strategy.rollingUpdate.maxSurge=0",
                "router.strategy.rollingUpdate has maxSurge 0 and maxUnavailable 0: no pod could "
                "ever be replaced; set maxSurge to 1");
  ExpectRefused(
      "--set decode.strategy.rollingUpdate.maxSurge=0% "
      "--set decode.strategy.rollingUpdate.maxUnavailable=00%",
      "decode.strategy.rollingUpdate has maxSurge 0% and maxUnavailable 00%");
  // A strategy with one or neither of maxSurge and maxUnavailable is valid: Kubernetes uses 25% for
  // a field that is not set.
  ExpectTaken(
      "--set prefill.strategy.rollingUpdate.maxSurge=10% "
      "--set decode.strategy.rollingUpdate.maxSurge=null --set router.strategy.rollingUpdate=null");
  ExpectTaken(
      "--set prefill.strategy.rollingUpdate.maxSurge=0 --set prefill.strategy.type=Recreate");
}

TEST_F(HelmRefusalTest, RequestsAreAtMostTheLimits) {
  ExpectRefused("--set decode.resources.limits.cpu=300m",
                "decode.resources: the request of cpu is 500m, above its limit, which is 300m; "
                "lower the request or raise the limit");
  // Each of the memory requests below is above the default limit of prefill workers, 2Gi.
  for (const std::string request : {"2147483649", "2147483648001m", "2.1Gi", "2.2e9", "2200M"}) {
    ExpectRefused(
        absl::StrCat("--set-string prefill.resources.requests.memory=", request),
        absl::StrCat("prefill.resources: the request of memory is ", request, ", above its"));
  }
  ExpectTaken(
      "--set-string prefill.resources.requests.memory=2147483648000m "
      "--set-string decode.resources.requests.memory=2.1e9 "
      "--set-string router.resources.requests.memory=1073741824 "
      "--set-string test.resources.requests.memory=268M "
      "--set-string goodput.resources.requests.memory=1048576Ki");
  ExpectTaken("--set prefill.resources.requests.memory=9Gi --set prefill.resources.limits=null");
  ExpectRefused("--set router.resources.requests.cpu=2 --set-string router.resources.limits.cpu=1",
                "router.resources: the request of cpu is 2, above its limit, which is 1");
  ExpectRefused("--set test.resources.requests.cpu=0.6", "test.resources: the request of cpu");
  ExpectRefused("--set goodput.resources.requests.memory=3Gi", "goodput.resources: the request");
  ExpectRefused(
      "--set model.init.resources.requests.cpu=2 --set model.init.resources.limits.cpu=1500m",
      "model.init.resources: the request of cpu is 2, above its limit, which is 1500m");
  ExpectRefused(
      "--set router.extraContainers[0].name=proxy --set router.extraContainers[0].image=p "
      "--set router.extraContainers[0].resources.requests.cpu=2 "
      "--set router.extraContainers[0].resources.limits.cpu=1",
      "the resources of the container 'proxy' of router: the request of cpu is 2, above its limit");
}

TEST_F(HelmRefusalTest, EveryPartThatTheModeNeedsHasAReplica) {
  ExpectRefused("--set router.replicas=0", "router.replicas is 0, and without a router nothing");
  for (const char* mode : {"disaggregated", "colocated"}) {
    ExpectRefused(absl::StrCat("--set decode.replicas=0 --set router.mode=", mode),
                  "decode.replicas is 0, and without a decode worker nothing is served; set it");
  }
  ExpectRefused("--set prefill.replicas=0",
                "prefill.replicas is 0, and with router.mode 'disaggregated' every prompt is read "
                "by a prefill worker; set it to 1 or more, or router.mode to auto or colocated");
  ExpectTaken("--set prefill.replicas=0 --set router.mode=auto");
  ExpectTaken("--set prefill.replicas=0 --set router.mode=colocated");
  // `replicas` is ignored when autoscaling is enabled.
  ExpectTaken("--set decode.replicas=0 --set decode.autoscaling.enabled=true");
}

// A router without workers leaves the Service when failureThreshold probes in a row have failed.
// The first probe may fail immediately, so the router stays for failureThreshold - 1 periods.
TEST_F(HelmRefusalTest, RoutersStayInTheServiceWhileRequestsWait) {
  ExpectTaken("--set router.pairWaitSeconds=30");
  ExpectRefused("--set router.pairWaitSeconds=31",
                "router.pairWaitSeconds is 31, and router.probes.readiness takes a router without "
                "workers out of the Service after 30 s (periodSeconds 2 x (failureThreshold 16 - "
                "1)), so that new requests would be refused while others still wait; set "
                "router.probes.readiness.failureThreshold to 17 or more");
  ExpectTaken("--set router.pairWaitSeconds=31 --set router.probes.readiness.failureThreshold=17");
  ExpectTaken("--set router.pairWaitSeconds=31 --set router.probes.readiness.periodSeconds=3");
  // If failureThreshold and periodSeconds are null, Kubernetes uses its own defaults: three probes,
  // ten seconds apart.
  const std::string unsaid =
      "--set router.probes.readiness.failureThreshold=null "
      "--set router.probes.readiness.periodSeconds=null --set router.pairWaitSeconds=";
  ExpectTaken(unsaid + "20");
  ExpectRefused(unsaid + "21", "failureThreshold to 4 or more");
}

TEST_F(HelmRefusalTest, TheAttachTokenIsNotHidden) {
  for (const std::string part : {"router", "prefill", "decode"}) {
    ExpectRefused(absl::StrCat("--set ", part, ".env[0].name=BATON_ATTACH_TOKEN --set ", part,
                               ".env[0].value=x"),
                  absl::StrCat(part,
                               ".env sets BATON_ATTACH_TOKEN, which would hide the token "
                               "that all pods of the release share; set attach.token or "
                               "attach.existingSecret"));
  }
  for (const char* flag : {"--attach-token=x", "-attach_token"}) {
    ExpectRefused(absl::StrCat("--set decode.args={", flag, "}"),
                  "decode.args has --attach-token, which would hide the token");
  }
  ExpectRefused("--set decode.env[0].name=POD_IP", "decode.env sets POD_IP, which would hide");
  ExpectTaken("--set decode.env[0].name=BATON_ATTACH_TOKENS");
}

TEST_F(HelmRefusalTest, KvHasAWayToAnotherPod) {
  ExpectRefused("--set kv.transports=shm",
                "kv.transports is 'shm', and with router.mode 'disaggregated' KV travels between "
                "pods, which share no memory (each has an IPC namespace of its own): no two "
                "workers could be paired; set it to auto, or add tcp");
  ExpectRefused("--set 'kv.transports=self\\,sysv\\,posix\\,cma'", "kv.transports is 'self,sysv,");
  ExpectRefused("--set kv.transports=shm --set router.mode=auto", "with router.mode 'auto'");
  for (const char* enough : {"auto", "'sysv\\,rc'", "^cma"})
    ExpectTaken(absl::StrCat("--set kv.transports=", enough));
  // In the mode colocated no KV moves between pods, so kv.transports may be shm alone.
  ExpectTaken("--set kv.transports=shm --set router.mode=colocated");
  ExpectTaken("--set kv.transports=shm --set router.mode=auto --set prefill.replicas=0");
}

TEST_F(HelmRefusalTest, AModelIsFetchedIntoAClaim) {
  ExpectRefused("--set model.fetch.name=org/model",
                "model.fetch.name is 'org/model' and model.source 'image': the Job fills a claim");
  ExpectRefused("--set model.source=pvc --set model.fetch.name=org/model",
                "model.pvc.claimName is missing (or model.pvc.create.enabled");
  ExpectRefused("--set model.source=pvc --set model.pvc.create.enabled=true",
                "model.pvc.create.enabled is true and model.pvc.create.size empty");
  ExpectRefused("--set model.pvc.create.enabled=true", "model.source 'image', which uses no claim");
}

TEST_F(HelmRefusalTest, AGgufFileIsNamedByItsOwnValue) {
  const std::string claim = "--set model.source=pvc --set model.pvc.claimName=models ";
  ExpectTaken(claim + "--set model.file=chat-Q4_K_M.gguf");
  ExpectTaken(claim + "--set model.file=BF16/chat-00001-of-00003.gguf");
  ExpectRefused(claim + "--set model.path=chat/chat-Q4_K_M.gguf",
                "model.path is 'chat/chat-Q4_K_M.gguf', a GGUF file; it takes the folder that the "
                "file is in, and model.file takes the file");
  ExpectRefused("--set model.source=hostPath --set model.hostPath.path=/m/chat.gguf",
                "model.hostPath.path is '/m/chat.gguf', a GGUF file; it takes the folder");
  ExpectRefused("--set model.file=chat.gguf",
                "model.file is 'chat.gguf' and model.path empty: the demo model is a folder");
  ExpectRefused(claim + "--set model.file=BF16/chat-00002-of-00003.gguf",
                "model.file is 'BF16/chat-00002-of-00003.gguf', one part of a split file; give the "
                "first one, whose name ends with -00001-of-00003.gguf");
}

TEST_F(HelmRefusalTest, AServiceHasOnlyWhatItsTypeHas) {
  ExpectRefused("--set service.nodePort=30051",
                "service.nodePort is 30051 and service.type 'ClusterIP', which has none; set "
                "service.type to NodePort or LoadBalancer");
  ExpectRefused("--set service.externalTrafficPolicy=Local",
                "service.externalTrafficPolicy is 'Local' and service.type 'ClusterIP'");
  ExpectRefused("--set service.loadBalancerClass=a.example/b --set service.type=NodePort",
                "service.loadBalancerClass is set and service.type is 'NodePort', which has no "
                "load balancer; set service.type to LoadBalancer");
  ExpectRefused("--set service.loadBalancerSourceRanges={203.0.113.0/24}",
                "service.loadBalancerSourceRanges is set and service.type is 'ClusterIP'");
}

TEST_F(HelmRefusalTest, PodsHaveWhatTheirContainersName) {
  ExpectRefused("--set decode.resources.claims[0].name=gpu",
                "decode.resources.claims names 'gpu', which decode.resourceClaims does not have; "
                "it has: nothing");
  ExpectRefused(
      "--set decode.resources.claims[0].name=gpu --set decode.resourceClaims[0].name=gpus "
      "--set decode.resourceClaims[0].resourceClaimTemplateName=t",
      "does not have; it has: gpus");
  ExpectRefused("--set decode.dnsPolicy=None",
                "decode.dnsPolicy is 'None', and decode.dnsConfig.nameservers is empty");
  for (const std::string list : {"extraContainers", "extraInitContainers"}) {
    ExpectRefused(
        absl::StrCat("--set router.", list, "[0].name=router --set router.", list, "[0].image=i"),
        "has a container 'router', which is the name of one of the chart's own");
  }
}

TEST_F(HelmRefusalTest, AnIngressNeedsApiKeysAndAPort) {
  const std::string ingress = "--set router.http.ingress.enabled=true ";
  ExpectRefused(ingress,
                "router.http.ingress.enabled is true, and clients need no API key: everyone who "
                "reaches the Ingress could use the model; set router.apiKeys.existingSecret to a "
                "Secret with one key a line, or router.apiKeys.create to true");
  ExpectTaken(ingress + "--set router.apiKeys.create=true");
  ExpectTaken(ingress + "--set router.apiKeys.existingSecret=mine");
  ExpectRefused(ingress + "--set router.apiKeys.create=true --set router.http.enabled=false",
                "router.http.ingress.enabled is true and router.http.enabled false, so that the "
                "Ingress would lead to no port; set router.http.enabled to true");
}

TEST_F(HelmRefusalTest, HttpHasAPortOfItsOwn) {
  ExpectRefused("--set router.http.port=50051",
                "router.http.port and router.port are both 50051; one pod listens at both, so give "
                "them different numbers");
  ExpectRefused("--set metrics.port=8000", "router.http.port and metrics.port are both 8000; one");
  ExpectTaken("--set metrics.port=8000 --set metrics.enabled=false");
  ExpectRefused("--set service.port=8000",
                "router.http.port and service.port are both 8000, and one Service has both; give "
                "them different numbers");
  ExpectTaken("--set service.port=8000 --set router.http.enabled=false");
  ExpectRefused("--set router.args={--http-listen=0.0.0.0:1}",
                "which would contradict other parts of the manifest; set router.http.enabled and "
                "router.http.port");
}

TEST_F(HelmRefusalTest, ApiKeysComeFromOneSecret) {
  ExpectRefused("--set router.apiKeys.create=true --set router.apiKeys.existingSecret=mine",
                "router.apiKeys.create is true and router.apiKeys.existingSecret 'mine'; clients' "
                "keys come from one Secret, so leave out one of the two");
  ExpectRefused("--set router.env[0].name=BATON_API_KEY",
                "router.env sets BATON_API_KEY, a key that neither `helm test` nor the goodput Job "
                "would know; put it into a Secret, and set router.apiKeys.existingSecret");
  ExpectTaken("--set decode.env[0].name=BATON_API_KEY");
  ExpectRefused("--set router.args={--api-key-file=/keys}",
                "which would contradict other parts of the manifest; set "
                "router.apiKeys.existingSecret");
}

}  // namespace
}  // namespace baton
