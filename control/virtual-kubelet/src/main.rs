//! Represents resources of a provider as a Node of this cluster, and has the pods of the Node run there.
//!
//! ```text
//! node        VirtualNode -> Node, its Lease and conditions (PURE)
//! pod         Pod -> ShadowPod, and the status back (PURE)
//! ```

#![forbid(unsafe_code)]

mod reflection;

fn main() {}
