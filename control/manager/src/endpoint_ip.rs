//! The IP objects by which providers reach endpoints outside of this cluster's pod CIDRs.
//!
//! ```text
//! EndpointSlice of an offloaded namespace  -> IP object of each such address -> its address in the external CIDR
//! pod at one of several providers         -> likewise
//! ```
//!
//! A virtual kubelet reflects an endpoint whose address is outside of the pod CIDRs by the address of an IP object of the
//! namespace. This controller creates the IP objects that are missing: for addresses that a user has written into an
//! EndpointSlice, and for pods at one provider if the namespace is offloaded to another one, too: their packets to the other
//! provider pass through this cluster, which gives them that address. `reflection` decides which
//! EndpointSlices are reflected, `objects` which of their addresses need one, `plan` compares them with the IP objects.
//!
//! A user who may write EndpointSlices would otherwise make addresses of this cluster reachable for providers, so the
//! addresses of nodes, Services and clouds are refused.

pub(crate) use controller::EndpointIpController;
#[cfg(test)]
pub(crate) use registrations::registrations;

mod controller;
mod objects;
mod plan;
mod reflection;
mod registrations;

#[cfg(test)]
mod tests;
