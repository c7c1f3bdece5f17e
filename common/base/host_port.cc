#include "common/base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace baton {
namespace {

std::string WithoutBrackets(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return std::string(host);
}

}  // namespace

int PortOf(absl::string_view host_port) {
  const size_t colon = host_port.rfind(':');
  int port = -1;
  if (colon == host_port.npos || !absl::SimpleAtoi(host_port.substr(colon + 1), &port)) return -1;
  return port >= 0 && port <= 65535 ? port : -1;
}

bool IsHostPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == address.npos || colon == 0 || PortOf(address) < 0) return false;
  const absl::string_view host = address.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  return bracketed || host.find_first_of(":[] /") == host.npos;
}

std::string WithPort(absl::string_view host_port, int port) {
  return absl::StrCat(host_port.substr(0, host_port.rfind(':')), ":", port);
}

std::string HostOf(absl::string_view host_port) {
  return WithoutBrackets(host_port.substr(0, host_port.rfind(':')));
}

bool IsAnyAddress(absl::string_view address) {
  const std::string host = IsHostPort(address) ? HostOf(address) : WithoutBrackets(address);
  in_addr four;
  in6_addr six;
  return (inet_pton(AF_INET, host.c_str(), &four) == 1 && four.s_addr == INADDR_ANY) ||
         (inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six));
}

}  // namespace baton
