//! Implements `aya::Pod` for the map keys and values that user space copies to and from the kernel.

use crate::maps::{ActiveWorker, Inbound, Local, Outbound, PeerAddress, Source, Unknown, V4};
use crate::probe::{Heartbeat, LastRequest};

// SAFETY: The type is `repr(C)` and has no implicit padding, as the asserted sizes prove. Every bit
// pattern is valid.
unsafe impl aya::Pod for PeerAddress<V4> {}
// SAFETY: The reasons given for `PeerAddress` apply.
unsafe impl aya::Pod for Outbound<V4> {}
// SAFETY: The reasons given for `PeerAddress` apply.
unsafe impl aya::Pod for Inbound<V4> {}
// SAFETY: The reasons given for `PeerAddress` apply.
unsafe impl aya::Pod for Source<V4> {}
// SAFETY: The reasons given for `PeerAddress` apply.
unsafe impl aya::Pod for Unknown<V4> {}
// SAFETY: The reasons given for `PeerAddress` apply.
unsafe impl aya::Pod for Local<V4> {}
// SAFETY: The reasons given for `PeerAddress` apply.
unsafe impl aya::Pod for ActiveWorker {}
// SAFETY: The reasons given for `PeerAddress` apply.
unsafe impl aya::Pod for Heartbeat {}
// SAFETY: The reasons given for `PeerAddress` apply.
unsafe impl aya::Pod for LastRequest {}
