#include "kv_transfer/transport/ucx_settings.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <ucm/api/ucm.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "kv_transfer/transport/port_range.h"
#include "kv_transfer/transport/ucx_devices.h"

namespace baton {
namespace {

// sysv comes before posix for two reasons. A sysv segment is reached by its number, but a posix one
// through /proc of its owner, which may be forbidden between containers. And sysv segments are
// marked for removal when they are created, so none outlives a killed process.
constexpr absl::string_view kShm = "sysv,posix";

// The list that keeps UCX's messages on this thread, or null if they are logged.
thread_local std::vector<std::string>* held_words = nullptr;

void LogWords(absl::string_view words) {
  // UCX's errors are logged only as warnings: often a peer is just gone, and each error is returned
  // as a status as well.
  Log(Severity::kWarning, "ucx", {{"says", words}});
}

ucs_log_func_rc_t WriteLog(const char*, unsigned, const char*, ucs_log_level_t level,
                           const ucs_log_component_config_t*, const char* format,
                           va_list arguments) {
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_CONTINUE;
  char message[512];
  va_list copy;
  va_copy(copy, arguments);
  std::vsnprintf(message, sizeof(message), format, copy);
  va_end(copy);
  if (held_words != nullptr && level != UCS_LOG_LEVEL_FATAL) {
    held_words->emplace_back(message);
  } else {
    LogWords(message);
  }
  // After a fatal error, UCX's own handler must run: it ends the process.
  return level == UCS_LOG_LEVEL_FATAL ? UCS_LOG_FUNC_RC_CONTINUE : UCS_LOG_FUNC_RC_STOP;
}

// Returns the reason why no TCP connection can use a network interface now, or "". `name` is one of
// this machine's interfaces.
absl::string_view Unusable(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  bool up = false, has_address = false;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (name != one->ifa_name) continue;
    constexpr unsigned kUp = IFF_UP | IFF_RUNNING;
    up |= (one->ifa_flags & kUp) == kUp;
    const int family = one->ifa_addr == nullptr ? AF_UNSPEC : one->ifa_addr->sa_family;
    // UCX ignores IPv6 link-local addresses, which every interface that is up has.
    has_address |=
        family == AF_INET ||
        (family == AF_INET6 &&
         !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr));
  }
  freeifaddrs(all);
  return !up ? "is down" : !has_address ? "has no IP address" : "";
}

// Checks that all named devices are present and up. UCX itself only warns of a missing device, and
// goes on without it.
absl::Status CheckDevices(const std::string& devices, bool tcp) {
  if (devices == "all") return absl::OkStatus();
  for (const absl::string_view device : absl::StrSplit(devices, ',')) {
    // "mlx5_0:1" means port 1 of mlx5_0
    const std::string name(device.substr(0, device.find(':')));
    const bool plain = !name.empty() && !absl::StrContains(name, '/');
    if (plain && access(absl::StrCat("/sys/class/infiniband/", name).c_str(), F_OK) == 0) continue;
    if (plain && access(absl::StrCat("/sys/class/net/", name).c_str(), F_OK) == 0) {
      const absl::string_view why = tcp && name != "lo" ? Unusable(name) : "";
      if (why.empty()) continue;
      return absl::UnavailableError(absl::StrCat(
          "network device '", name, "' of --kv-net-device ", why, ", as `ip address show ", name,
          "` shows, so KV could not travel over it; start the worker once the device is up"));
    }
    std::vector<std::string> here;
    if (struct if_nameindex* const all = if_nameindex(); all != nullptr) {
      for (const auto* one = all; one->if_name != nullptr; ++one) here.emplace_back(one->if_name);
      if_freenameindex(all);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "network device '", device, "' of '", devices, "' is not on this machine, which has ",
        absl::StrJoin(here, ", "), ": name some of them with --kv-net-device"));
  }
  return absl::OkStatus();
}

// Returns false if any socket of this machine uses the port, or was closed a moment ago: UCX binds
// without SO_REUSEADDR.
bool IsFreePort(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return true;  // UCX will report the reason
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
                    errno != EADDRINUSE;
  close(fd);
  return free;
}

// Checks that two ports are free: one for UCX, which in version 1.13 searches for ever if its whole
// range is taken, and one for TcpGreetings.
absl::Status CheckPorts(const std::string& ports, bool tcp) {
  ASSIGN_OR_RETURN(const auto range, PortRange::Parse(ports));
  if (range.any() || !tcp) return absl::OkStatus();
  int free = 0;
  for (int port = range.first; port <= range.last; ++port) {
    if (IsFreePort(port) && ++free == 2) return absl::OkStatus();
  }
  return range.Taken();
}

// Returns the name of a TCP setting for ucp_config_modify. From UCX 1.17 on these names have the
// transport's prefix; UCX only warns of an unknown name.
std::string TcpName(absl::string_view name) {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return absl::StrCat(major > 1 || minor >= 17 ? "TCP_" : "", name);
}

// Returns --kv-transports in UCX's terms. UCX's own "shm" and "sm" include transports that the KV
// plane does not need. If they are enabled, UCX 1.13 crashes with a segmentation fault when it
// opens the memory of a worker that runs as another user.
std::string TransportsOf(absl::string_view flag) {
  std::vector<absl::string_view> transports;
  for (const absl::string_view one : absl::StrSplit(flag == "auto" ? "shm,tcp" : flag, ',')) {
    transports.push_back(one == "shm" || one == "sm" ? kShm : one);
  }
  return absl::StrJoin(transports, ",");
}

}  // namespace

UcxWordsHeld::UcxWordsHeld() { held_words = &said_; }

UcxWordsHeld::~UcxWordsHeld() {
  held_words = nullptr;
  for (const std::string& words : said_) LogWords(words);
}

bool UcxWordsHeld::Contain(absl::string_view part) const {
  return std::any_of(said_.begin(), said_.end(), [part](const std::string& message) {
    return absl::StrContains(message, part);
  });
}

std::string UcxWordsHeld::Take() {
  const std::vector<std::string> said = std::exchange(said_, {});
  return said.empty() ? "" : absl::StrCat("; UCX says: ", said[0]);
}

absl::Status UcxError(absl::StatusCode code, absl::string_view what, ucs_status_t status) {
  return absl::Status(code, absl::StrCat("UCX: ", what, ": ", ucs_status_string(status)));
}

absl::StatusOr<ucp_config_t*> UcxSettings(const UcxOptions& options) {
  std::string tls = TransportsOf(options.tls);
  if (options.tls == "auto" && options.device_memory) {
    for (const std::string& more : UcxDeviceTransports()) absl::StrAppend(&tls, ",", more);
  }
  const char* used_tls = std::getenv("UCX_TLS");
  const absl::string_view effective = used_tls != nullptr ? used_tls : absl::string_view(tls);
  const bool all = absl::StrContains(effective, "all");
  const bool has_tcp = all || absl::StrContains(effective, "tcp");
  const bool has_shm = all || absl::StrContains(effective, "sysv") ||
                       absl::StrContains(effective, "posix") || absl::StrContains(effective, "sm");
  absl::Status checked = CheckDevices(options.net_devices, has_tcp);
  if (checked.ok()) checked = CheckPorts(options.ports, has_tcp);
  RETURN_IF_ERROR(checked);
  // A setting has two names: `name` is for ucp_config_modify, and `variables` are the environment
  // variables. A wrong name is easily overlooked: UCX only logs a warning when a worker is created.
  struct Setting {
    std::string transports, name, value;
    std::vector<std::string> variables;
  };
  const std::vector<Setting> settings = {
      {"", "TLS", tls, {"UCX_TLS"}},
      {"", "NET_DEVICES", options.net_devices, {"UCX_NET_DEVICES"}},
      // Without this setting, UCX silently uses TCP instead of shared memory for endpoints that
      // must report dead peers.
      {"shm",
       "MM_ERROR_HANDLING",
       "y",
       {"UCX_MM_ERROR_HANDLING", "UCX_SYSV_ERROR_HANDLING", "UCX_POSIX_ERROR_HANDLING"}},
      {"shm",
       "MM_HUGETLB_MODE",
       "n",
       {"UCX_MM_HUGETLB_MODE", "UCX_SYSV_HUGETLB_MODE", "UCX_POSIX_HUGETLB_MODE"}},
      {"", "KEEPALIVE_INTERVAL", "1s", {"UCX_KEEPALIVE_INTERVAL"}},
      // UCX's default segment sizes are 8K and 64K, which are four to six times slower on loopback.
      {"tcp", TcpName("TX_SEG_SIZE"), "256K", {"UCX_TX_SEG_SIZE", "UCX_TCP_TX_SEG_SIZE"}},
      {"tcp", TcpName("RX_SEG_SIZE"), "512K", {"UCX_RX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"}},
      // Without this setting, connect() to a host that is gone would block the KV thread.
      {"tcp", TcpName("CONN_NB"), "y", {"UCX_CONN_NB", "UCX_TCP_CONN_NB"}},
      {"tcp", TcpName("PORT_RANGE"), options.ports, {"UCX_PORT_RANGE", "UCX_TCP_PORT_RANGE"}},
      // md and mmap allocators give fresh pages, so the memory is zero. The KV plane touches the
      // pages of a worker's pool itself.
      {"", "ALLOC_PRIO", "md:sysv,md:posix,mmap", {"UCX_ALLOC_PRIO"}},
  };
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) {
    return UcxError(absl::StatusCode::kUnavailable, "reading its configuration", status);
  }
  for (const Setting& setting : settings) {
    if (setting.value.empty()) continue;
    bool overridden = false;
    for (const std::string& variable : setting.variables) {
      const char* used = std::getenv(variable.c_str());
      if (used == nullptr) continue;
      overridden = true;
      Log(Severity::kWarning, "ucx_setting_overridden",
          {{"name", variable}, {"ours", setting.value}, {"used", absl::string_view(used)}});
    }
    if (overridden) continue;
    if (setting.transports == "tcp" && !has_tcp) continue;
    if (setting.transports == "shm" && !has_shm) continue;
    status = ucp_config_modify(config, setting.name.c_str(), setting.value.c_str());
    if (status != UCS_OK) {
      ucp_config_release(config);
      return UcxError(absl::StatusCode::kInvalidArgument,
                      absl::StrCat(setting.name, "=", setting.value), status);
    }
  }
  return config;
}

void TameUcx() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
    ucm_global_config_t memory{};
    memory.log_level = UCS_LOG_LEVEL_WARN;
    memory.enable_events = 0;
    memory.mmap_hook_mode = UCM_MMAP_HOOK_BISTRO;
    memory.alloc_alignment = 16;
    ucm_set_global_opts(&memory);
    ucs_log_push_handler(WriteLog);
    // UCX looks for its modules beside its libraries. If a module is not there, UCX looks for it in
    // the folder of the Linux distribution. UCX's modules for AMD's GPUs load libraries that Baton
    // has no use for.
    if (std::getenv("UCX_MODULES") == nullptr) ucs_global_opts_set_value("MODULES", "^rocm");
  });
}

}  // namespace baton
