//! WireGuard for all peers of a cluster, and the end of its overlay.

fn main() {}
