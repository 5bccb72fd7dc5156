//! The runtime of every process that follows an API server.
//!
//! [`transport`] carries the requests of a cluster: HTTP/2 with a bounded number of streams per
//! connection, deadlines by kind of request, limits on what a server may send, and credentials
//! that are replaced while watches run.

#![forbid(unsafe_code)]

pub mod transport;
