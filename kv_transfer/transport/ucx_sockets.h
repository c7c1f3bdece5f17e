#pragma once

namespace baton {

// UCX's TCP transport aborts the process, or reads and writes any memory, if a peer sends bytes
// that UCX itself would not send. So every program that links this file uses our version of one of
// UCX's functions for sockets, by defining a function with the same name.
//
// ucs_socket_accept hands a connection to UCX only if its first bytes are a well-formed request of
// UCX to connect. All other connections are closed, and the log event kv_garbage_dropped says so at
// most once a second. The check does not tell who the peer is: a program that speaks UCX's protocol
// passes. UCX calls it on a thread of its own.

// Makes the kernel hold back a connection to `listener`, a socket at which UCX listens, until its
// first bytes arrive or some seconds have passed. So these bytes can be checked without waiting.
void GuardUcxListener(int listener);

}  // namespace baton
