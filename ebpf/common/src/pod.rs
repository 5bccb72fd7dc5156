//! Types that the kernel may read and write byte by byte.

use crate::maps::{ActiveWorker, Inbound, Local, Outbound, PeerAddress, Unknown, V4};
use crate::probe::{Heartbeat, Sighting};

// SAFETY: `repr(C)`, no padding (see the asserted sizes), and every bit pattern is valid.
unsafe impl aya::Pod for PeerAddress<V4> {}
// SAFETY: As above.
unsafe impl aya::Pod for Outbound<V4> {}
// SAFETY: As above.
unsafe impl aya::Pod for Inbound<V4> {}
// SAFETY: As above.
unsafe impl aya::Pod for Unknown<V4> {}
// SAFETY: As above.
unsafe impl aya::Pod for Local<V4> {}
// SAFETY: As above.
unsafe impl aya::Pod for ActiveWorker {}
// SAFETY: As above.
unsafe impl aya::Pod for Heartbeat {}
// SAFETY: As above.
unsafe impl aya::Pod for Sighting {}
