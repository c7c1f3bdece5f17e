#pragma once

#include <ucp/api/ucp.h>

namespace baton {

// UCX's TCP transport aborts the process, or reads and writes any memory, if a peer sends bytes
// that UCX itself would not send. And UCX 1.13 has errors of its own that end the process when
// connections fail (see ucx_sockets.cc). So every program that links this file uses our versions of
// some of UCX's functions, by defining functions with the same names:
//
// - ucs_socket_accept hands a connection to UCX only if its first bytes are a well-formed request
//   of UCX to connect. All other connections are closed, and the log event kv_garbage_dropped says
//   so at most once a second. The check does not tell who the peer is: a program that speaks UCX's
//   protocol passes. UCX calls it on a thread of its own.
// - With UCX 1.13, what ucs_socket_recv_nb reads of a connection ends with the first message that
//   could make UCX connect to the peer. It needs ucs_socket_connect to know which connections are
//   new.
// - With UCX 1.13, ucp_ep_err_pending_purge drops every wire-up message that waits on a connection
//   that has failed. UCX's own version aborts if the message is a reply to the peer's request.
// - With UCX 1.13, uct_iface_handle_ep_err leaves it to ProgressUcx to handle a connection that has
//   failed. UCX itself handles it while it sends a message, and aborts if the message had waited
//   before, or answers a read. uct_iface_open lets messages for such a connection wait until then.
// - With UCX 1.13, ucs_event_set_wait handles one connection at a time. UCX handles up to 16, and
//   aborts if handling one of them closed another.

// Works like ucp_worker_progress, and must be used instead.
unsigned ProgressUcx(ucp_worker_h worker);
// Returns true if ProgressUcx has something to do on this thread that no event will report.
bool UcxMustProgress();

// Makes the kernel hold back a connection to `listener`, a socket at which UCX listens, until its
// first bytes arrive or some seconds have passed. So these bytes can be checked without waiting.
void GuardUcxListener(int listener);

}  // namespace baton
