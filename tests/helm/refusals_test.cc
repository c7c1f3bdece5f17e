// Values that the schema takes one by one, and that could not run or serve together, are refused in
// words that name the values and what to do.

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
};

TEST_F(HelmRefusalTest, AServiceHasOnlyWhatItsTypeHas) {
  ExpectRefused("--set service.nodePort=30051",
                "service.nodePort is 30051 and service.type 'ClusterIP', which has none; set "
                "service.type to NodePort or LoadBalancer");
  ExpectRefused("--set service.externalTrafficPolicy=Local",
                "service.externalTrafficPolicy is 'Local' and service.type 'ClusterIP'");
  for (const char* type : {"ClusterIP", "NodePort"}) {
    ExpectRefused(absl::StrCat("--set service.loadBalancerClass=a.example/b --set service.type=",
                               type),
                  absl::StrCat("service.loadBalancerClass is set and service.type is '", type,
                               "', which has no load balancer"));
    ExpectRefused(
        absl::StrCat("--set service.loadBalancerSourceRanges={203.0.113.0/24} --set service.type=",
                     type),
        "service.loadBalancerSourceRanges is set and service.type is");
  }
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
  for (const std::string name : {"router", "model"}) {
    for (const std::string list : {"extraContainers", "extraInitContainers"}) {
      ExpectRefused(absl::StrCat("--set router.", list, "[0].name=", name, " --set router.", list,
                                 "[0].image=i"),
                    absl::StrCat("has a container '", name, "', which is the name of one of the "
                                                            "chart's own"));
    }
  }
}

}  // namespace
}  // namespace baton
