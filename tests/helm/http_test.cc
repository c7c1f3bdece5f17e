// Tests of the manifests for the router's HTTP port, for the Ingress that leads to it, and for the
// API keys that clients need.

#include <set>
#include <string>

#include <gmock/gmock.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/helm/helm_harness.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using HelmHttpTest = HelmTest;

constexpr char kPools[] = "--show-only templates/pools.yaml ";
constexpr char kServices[] = "--show-only templates/services.yaml ";
constexpr char kIngress[] =
    "--show-only templates/ingress.yaml --set router.http.ingress.enabled=true "
    "--set router.apiKeys.existingSecret=mine ";

TEST_F(HelmHttpTest, RoutersServeHttpOnAPortOfTheirOwn) {
  const std::string pools = Template(absl::StrCat(kPools,
                                                  "--set router.http.port=8080 "
                                                  "--set router.http.metrics=true "
                                                  "--set router.http.allowOrigin=https://a.example "
                                                  "--set router.http.unknownFields=refuse"))
                                .output;
  for (const char* once :
       {"            - --http-listen=0.0.0.0:8080\n", "            - --http-metrics\n",
        "            - --http-allow-origin=https://a.example\n",
        "            - --http-unknown-fields=refuse\n",
        "            - name: http\n              containerPort: 8080\n",
        "            httpGet: {port: http, path: /health}\n"}) {
    EXPECT_EQ(Count(pools, once), 1) << once;
  }
  const std::string plain = Template(kPools).output;
  EXPECT_THAT(plain,
              AllOf(HasSubstr("--http-unknown-fields=ignore\n"), Not(HasSubstr("--http-metrics")),
                    Not(HasSubstr("--http-allow-origin"))));
  EXPECT_THAT(Template(absl::StrCat(kPools, "--set listenAddress='[::]'")).output,
              HasSubstr("- --http-listen=[::]:8000\n"));
  const std::set<std::string> known = FlagsOf("baton-router");
  for (const char* flag : {"--http-listen", "--http-metrics", "--http-allow-origin",
                           "--http-unknown-fields", "--api-key-file"}) {
    EXPECT_TRUE(known.contains(flag)) << flag;
  }
}

// Workers attach to routers that are not ready, because a router gets ready only when it has
// workers. So their Service publishes such routers, and has no port for clients.
TEST_F(HelmHttpTest, ClientsReachHttpThroughTheirServices) {
  const std::string services =
      Template(absl::StrCat(kServices, "--set router.http.port=8080")).output;
  constexpr char kPort[] =
      "    - name: http\n      port: 8080\n      targetPort: http\n      appProtocol: http\n";
  EXPECT_EQ(Count(services, kPort), 2);
  const size_t workers = services.find("\n  name: baton-routers\n");
  ASSERT_NE(workers, services.npos);
  EXPECT_THAT(services.substr(workers),
              AllOf(HasSubstr("\n  publishNotReadyAddresses: true\n"), Not(HasSubstr("http"))));
  EXPECT_EQ(Count(services, "publishNotReadyAddresses"), 1);
  const std::string policies = "--show-only templates/networkpolicy.yaml ";
  EXPECT_EQ(Count(Template(policies).output, "    - ports: [{port: grpc}, {port: http}]\n"), 1);
}

// If a router without workers were killed, then its queue would be lost. So only readiness depends
// on workers.
TEST_F(HelmHttpTest, OnlyReadinessNeedsWorkers) {
  const std::string pools = Template(kPools).output;
  EXPECT_EQ(Count(pools, "httpGet"), 1);
  EXPECT_EQ(Count(pools,
                  "          startupProbe:\n"
                  "            grpc: {port: 50051, service: baton.v1.Membership}\n"),
            1);
  EXPECT_EQ(Count(pools,
                  "          livenessProbe:\n"
                  "            grpc: {port: 50051, service: baton.v1.Membership}\n"),
            1);
  EXPECT_EQ(Count(pools,
                  "          readinessProbe:\n"
                  "            httpGet: {port: http, path: /health}\n"
                  "            failureThreshold: 16\n"),
            1);
}

// An upgrade with --reuse-values from a version without HTTP has none of the values.
TEST_F(HelmHttpTest, WithoutHttpThereIsOnlyGrpc) {
  for (const char* off :
       {"--set router.http.enabled=false", "--set router.http=null --set router.apiKeys=null"}) {
    const Ended rendered = Template(absl::StrCat("--set goodput.enabled=true ", off));
    EXPECT_EQ(rendered.exit_status, 0) << rendered.output;
    EXPECT_THAT(rendered.output,
                AllOf(Not(HasSubstr("http-")), Not(HasSubstr("name: http")), Not(HasSubstr("HTTP")),
                      Not(HasSubstr("api-key")), Not(HasSubstr("API_KEY")),
                      HasSubstr("    - ports: [{port: grpc}]\n"),
                      HasSubstr("          readinessProbe:\n"
                                "            grpc: {port: 50051, service: baton.v1.Inference}\n")));
  }
}

TEST_F(HelmHttpTest, AnIngressLeadsHostsAndPathsToTheService) {
  EXPECT_THAT(Template("").output, Not(HasSubstr("kind: Ingress")));
  EXPECT_THAT(
      Template(absl::StrCat(kIngress,
                            "--set router.http.ingress.className=nginx "
                            "--set router.http.ingress.hosts='{a.example,*.b.example}' "
                            "--set router.http.ingress.paths='{/v1,/health}' "
                            "--set router.http.ingress.annotations.note=x "
                            "--set router.http.ingress.tls[0].secretName=a-tls "
                            "--set router.http.ingress.tls[0].hosts='{a.example}'"))
          .output,
      AllOf(
          HasSubstr("\n  annotations:\n    note: x\nspec:\n  ingressClassName: \"nginx\"\n"
                    "  tls:\n    - hosts:\n      - a.example\n      secretName: a-tls\n  rules:\n"),
          HasSubstr(R"(
    - http:
        paths:
          - path: "/v1"
            pathType: Prefix
            backend: {service: {name: baton, port: {name: http}}}
          - path: "/health"
            pathType: Prefix
            backend: {service: {name: baton, port: {name: http}}}
      host: "a.example"
)"),
          HasSubstr("      host: \"*.b.example\"\n")));
  // /metrics needs no key, so the Ingress leads to it only if `paths` says so.
  const std::string every = Template(kIngress).output;
  EXPECT_THAT(every, AllOf(HasSubstr("- path: \"/v1\"\n"), HasSubstr("- path: \"/tokenize\"\n"),
                           Not(HasSubstr("metrics")), Not(HasSubstr("host:")),
                           Not(HasSubstr("tls:")), Not(HasSubstr("ingressClassName"))));
  EXPECT_EQ(Count(every, "    - http:\n"), 1);
}

TEST_F(HelmHttpTest, RoutersReadTheKeysOfASecret) {
  const std::string pools = Template(absl::StrCat(kPools,
                                                  "--set router.apiKeys.existingSecret=mine "
                                                  "--set router.apiKeys.secretKey=of.us"))
                                .output;
  for (const char* once :
       {"            - --api-key-file=/etc/baton/api-keys/keys\n",
        "            - name: api-keys\n              mountPath: /etc/baton/api-keys\n"
        "              readOnly: true\n",
        "        - name: api-keys\n          secret:\n            secretName: \"mine\"\n"
        "            items: [{key: \"of.us\", path: keys}]\n"}) {
    EXPECT_EQ(Count(pools, once), 1) << once;
  }
  EXPECT_THAT(Template("").output, AllOf(Not(HasSubstr("api-key")), Not(HasSubstr("API_KEYS"))));
  // The routers notice a change of the Secret, but an environment never changes. So it is only in
  // the pods that run once.
  EXPECT_THAT(pools, Not(HasSubstr("API_KEY")));
  const std::string all =
      Template("--set goodput.enabled=true --set router.apiKeys.existingSecret=mine").output;
  EXPECT_EQ(Count(all, "- name: API_KEYS\n"), 2);
  EXPECT_EQ(Count(all, "valueFrom: {secretKeyRef: {name: \"mine\", key: \"keys\"}}\n"), 2);
  EXPECT_EQ(Count(all, "export BATON_API_KEY\n"), 2);
}

TEST_F(HelmHttpTest, TheChartMakesAKeyOnce) {
  const std::string secret =
      "--show-only templates/api-keys-secret.yaml --set router.apiKeys.create=true";
  const std::string one = Template(secret).output;
  EXPECT_THAT(one, HasSubstr("\n  name: baton-api-keys\n"));
  EXPECT_THAT(one, testing::ContainsRegex("\n  keys: [A-Za-z0-9]{64}"));
  EXPECT_NE(one, Template(secret).output);
  EXPECT_EQ(Count(Template(absl::StrCat(kPools, "--set router.apiKeys.create=true")).output,
                  "secretName: \"baton-api-keys\"\n"),
            1);
  EXPECT_THAT(TemplateWhere("api-keys-secret.yaml",
                            {{"lookup \"v1\" \"Secret\" .Release.Namespace $name",
                              R"({"data": {"keys": "YQ=="}})"}},
                            secret)
                  .output,
              HasSubstr("\n  keys: YQ==\n"));
}

TEST_F(HelmHttpTest, ASecretWithoutAKeyIsRefused) {
  const auto with = [&](const std::string& secret) {
    return TemplateWhere(
        "api-keys-secret.yaml",
        {{"lookup \"v1\" \"Secret\" .Release.Namespace $keys.existingSecret", secret}},
        "--set router.apiKeys.existingSecret=mine --set router.apiKeys.secretKey=k.1");
  };
  const auto holding = [](const std::string& keys) {
    return absl::StrCat(R"({"data": {"k.1": ")", absl::Base64Escape(keys), R"("}})");
  };
  for (const char* keys : {"", "\n", "# none yet\n", "a b\n", "\xc3\xa4"}) {
    const Ended refused = with(holding(keys));
    EXPECT_NE(refused.exit_status, 0) << keys;
    EXPECT_THAT(
        refused.output,
        HasSubstr("router.apiKeys.existingSecret: 'k.1' of the Secret 'mine' has no key; it "
                  "takes one a line"));
  }
  for (const char* keys : {"a-Key~!", "# of the chat\nsk-1\r\n\n  sk-2\n"}) {
    EXPECT_EQ(with(holding(keys)).exit_status, 0) << keys;
  }
  EXPECT_EQ(with("{}").exit_status, 0) << "it is not there yet";
}

}  // namespace
}  // namespace baton
