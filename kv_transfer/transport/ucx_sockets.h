#pragma once

namespace baton {

// UCX's TCP transport aborts the process, or reads and writes any memory, if a peer sends bytes
// that UCX itself would not send. And UCX 1.13 ends with SIGSEGV when messages of a peer pile up
// (see ucx_sockets.cc). So every program that links this file uses our versions of some of UCX's
// functions for sockets, by defining functions with the same names:
//
// - ucs_socket_accept hands a connection to UCX only if its first bytes are a well-formed request
//   of UCX to connect. All other connections are closed, and the log event kv_garbage_dropped says
//   so at most once a second. The check does not tell who the peer is: a program that speaks UCX's
//   protocol passes. UCX calls it on a thread of its own. UCX would close its listener for good
//   after a connection that it could not take, for example because the process had no free
//   descriptors. Such a connection is closed instead, or goes on waiting, and the log event
//   kv_connection_not_taken says so at most once a second.
// - With UCX 1.13, what ucs_socket_recv_nb reads of a connection ends with the first message that
//   could make UCX connect to the peer. It needs ucs_socket_connect to know which connections are
//   new.

// Makes the kernel hold back a connection to `listener`, a socket at which UCX listens, until its
// first bytes arrive or some seconds have passed. So these bytes can be checked without waiting.
// Also opens a descriptor, one for all listeners of the process, with which ucs_socket_accept takes
// and closes connections when no other descriptor is left.
void GuardUcxListener(int listener);

}  // namespace baton
