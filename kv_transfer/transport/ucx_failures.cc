#include "kv_transfer/transport/ucx_failures.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include <ucs/sys/event_set.h>
#include <ucs/sys/sock.h>
#include <uct/api/uct.h>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "kv_transfer/transport/ucx_own.h"

#if UCP_API_VERSION < UCP_VERSION(1, 14)
// Functions of UCX that its headers don't declare.
extern "C" {
void ucp_ep_err_pending_purge(uct_pending_req_t* message, void* why);
ucs_status_t uct_iface_handle_ep_err(uct_iface_h interface, uct_ep_h endpoint, ucs_status_t why);
// UCX calls the type of `endpoint` uct_tcp_ep_t, which begins with a uct_ep.
ucs_status_t uct_tcp_cm_send_event(uct_ep_h endpoint, unsigned event, int logs_errors);
}

namespace baton {
namespace {

// If UCX's TCP transport can't send a message because the connection has failed, it tells UCP at
// once, from within the call, and returns an error. UCP ends the endpoint within this call. But
// UCP's code around the call does not expect that: it still counts a wire-up message as waiting
// (`pending_count == 0` in wireup_ep.c), or expects no errors while it answers a read of a peer
// (`unexpected error: Endpoint timeout`), and aborts. So UCP is told later, when all calls have
// returned. Until then the connection looks busy: messages for it wait, and end with it.
struct Failure {
  uct_iface_h interface;
  uct_ep_h endpoint;  // may have been destroyed by the time UCP is told; UCP only compares it
  ucs_status_t why;
};
thread_local std::vector<Failure> failures;

// Set if UCX could not open a socket on this thread.
thread_local bool no_socket = false;

std::atomic<uct_ep_am_bcopy_func_t> send_by_tcp{nullptr};  // UCX's function, the same for all

ssize_t SendOrWait(uct_ep_h endpoint, uint8_t id, uct_pack_callback_t pack, void* arg,
                   unsigned flags) {
  const ssize_t sent = send_by_tcp.load()(endpoint, id, pack, arg, flags);
  const bool failed = sent == UCS_ERR_ENDPOINT_TIMEOUT || sent == UCS_ERR_CONNECTION_RESET;
  return failed ? static_cast<ssize_t>(UCS_ERR_NO_RESOURCE) : sent;
}

ucs_status_t HandleUcxFailure(const Failure& failure) {
  static const auto ucx = UcxsOwn(&uct_iface_handle_ep_err, "uct_iface_handle_ep_err");
  return ucx(failure.interface, failure.endpoint, failure.why);
}

}  // namespace

unsigned ProgressUcx(ucp_worker_h worker) {
  unsigned moved = ucp_worker_progress(worker);
  for (const Failure& failure : std::exchange(failures, {})) {
    (void)HandleUcxFailure(failure);
    ++moved;
  }
  return moved;
}

bool UcxMustProgress() { return !failures.empty(); }

}  // namespace baton

extern "C" {

// Calls `handler` for each connection at which something has happened. UCX asks for up to 16 at
// once. But handling the first one may close the second one, for which the handler then aborts
// (conn_state != UCT_TCP_EP_CONN_STATE_CLOSED in tcp_iface.c). So each is asked for alone.
ucs_status_t ucs_event_set_wait(ucs_sys_event_set_t* set, unsigned* number, int timeout_ms,
                                ucs_event_set_handler_t handler, void* arg) {
  static const auto ucx = baton::UcxsOwn(&ucs_event_set_wait, "ucs_event_set_wait");
  if (timeout_ms != 0) return ucx(set, number, timeout_ms, handler, arg);
  const unsigned max = std::exchange(*number, 0);
  ucs_status_t status = UCS_OK;
  for (unsigned found = 1; found == 1 && *number < max && status == UCS_OK;) {
    status = ucx(set, &found, 0, handler, arg);
    *number += found;
  }
  return status;
}

// Is called for each message that waits on a connection that has failed. All lanes of the message's
// endpoint have failed by then.
void ucp_ep_err_pending_purge(uct_pending_req_t* message, void* why) {
  static const auto ucx = baton::UcxsOwn(&ucp_ep_err_pending_purge, "ucp_ep_err_pending_purge");
  static const auto send_wire_up =
      baton::UcxsOwn(uct_pending_callback_t{}, "ucp_wireup_msg_progress");
  if (message->func == send_wire_up && send_wire_up(message) != UCS_ERR_NO_RESOURCE) return;
  ucx(message, why);
}

// Tells UCP that a connection has failed.
ucs_status_t uct_iface_handle_ep_err(uct_iface_h interface, uct_ep_h endpoint, ucs_status_t why) {
  baton::failures.push_back({interface, endpoint, why});
  return UCS_OK;
}

ucs_status_t ucs_socket_create(int domain, int type, int* fd) {
  static const auto ucx = baton::UcxsOwn(&ucs_socket_create, "ucs_socket_create");
  const ucs_status_t status = ucx(domain, type, fd);
  if (status != UCS_OK) baton::no_socket = true;
  return status;
}

// Sends a message with which UCX connects. If the peer has dropped the connection, UCX opens
// another socket. If it can't at the first attempt, for example because no descriptor is free, it
// closes the connection, but tells nothing of that, and all messages for the peer would wait for
// ever.
ucs_status_t uct_tcp_cm_send_event(uct_ep_h endpoint, unsigned event, int logs_errors) {
  static const auto ucx = baton::UcxsOwn(&uct_tcp_cm_send_event, "uct_tcp_cm_send_event");
  baton::no_socket = false;
  const ucs_status_t status = ucx(endpoint, event, logs_errors);
  const auto is_this = [=](const baton::Failure& failure) { return failure.endpoint == endpoint; };
  if (baton::no_socket && std::none_of(baton::failures.begin(), baton::failures.end(), is_this)) {
    baton::failures.push_back({endpoint->iface, endpoint, UCS_ERR_ENDPOINT_TIMEOUT});
  }
  return status;
}

ucs_status_t uct_iface_open(uct_md_h domain, uct_worker_h worker, const uct_iface_params_t* params,
                            const uct_iface_config_t* config, uct_iface_h* interface) {
  static const auto ucx = baton::UcxsOwn(&uct_iface_open, "uct_iface_open");
  const ucs_status_t status = ucx(domain, worker, params, config, interface);
  const bool is_tcp = (params->open_mode & UCT_IFACE_OPEN_MODE_DEVICE) != 0 &&
                      absl::string_view(params->mode.device.tl_name) == "tcp";
  if (status == UCS_OK && is_tcp) {
    const auto before = baton::send_by_tcp.exchange(
        std::exchange((*interface)->ops.ep_am_bcopy, baton::SendOrWait));
    BATON_CHECK(before == nullptr || before == baton::send_by_tcp);
  }
  return status;
}

}  // extern "C"

#else

namespace baton {

unsigned ProgressUcx(ucp_worker_h worker) { return ucp_worker_progress(worker); }
bool UcxMustProgress() { return false; }

}  // namespace baton

#endif
