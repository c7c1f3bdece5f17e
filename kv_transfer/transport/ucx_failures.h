#pragma once

#include <ucp/api/ucp.h>

namespace baton {

// UCX 1.13 aborts the process in some cases in which a connection fails. So every program that
// links this file uses our versions of some of UCX's functions, by defining functions with the same
// names. With UCX 1.14 or later it uses UCX's.
//
// - uct_iface_handle_ep_err leaves it to ProgressUcx to handle a connection that has failed. UCX
//   itself handles it while it sends a message, and aborts if the message had waited before, or
//   answers a read. uct_iface_open lets messages for such a connection wait until then.
// - uct_tcp_cm_send_event and ucs_socket_create find a failure that UCX does not report: the peer
//   dropped the connection before it was made, and UCX could not open a socket to connect again.
// - ucp_ep_err_pending_purge drops every wire-up message that waits on a connection that has
//   failed. UCX's own version aborts if the message is a reply to the peer's request.
// - ucs_event_set_wait handles one connection at a time. UCX handles up to 16, and aborts if
//   handling one of them closed another.
//
// A failure belongs to the thread on which it was found: this thread must call ProgressUcx.

// Call this instead of ucp_worker_progress. It also handles the failures that were found on this
// thread, of any worker. Returns 0 if there was nothing to do.
unsigned ProgressUcx(ucp_worker_h worker);
// Returns true if a failure waits for ProgressUcx on this thread. No event tells of it, so the
// thread must not wait for one.
bool UcxMustProgress();

}  // namespace baton
