//! Memory layouts that the eBPF programs and user space share.
//!
//! Most addresses are byte arrays in network byte order, as in packets. The outer addresses in
//! [`maps::Local`] are integers in host byte order, as in the kernel's `struct bpf_tunnel_key`.
//! Assertions check the sizes at compile time, because the kernel and user space must agree on
//! every offset.
//!
//! Terms:
//!
//! - A *peer* is a remote cluster. Its *original* addresses may overlap those of this cluster, so
//!   this cluster *remaps* them to prefixes that are unique here.
//! - The *overlay* is a VXLAN between nodes and gateways. Its *outer* addresses belong to nodes and
//!   gateways, and its *inner* addresses to pods and services.
//! - An *IP object* is a custom resource of Liqo. It stands for a host or a remote pod, and has an
//!   address in this cluster's external CIDR.
//! - The *engine* is the gateway's process that implements WireGuard. Each of its *lanes* carries a
//!   share of the packets, and each lane has one *worker* thread per group of CPUs.
//! - The *TAP* is the device through which the eBPF programs and the engine exchange unencrypted
//!   packets. Each peer has a MAC address on the TAP.

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

pub mod settings;

pub mod probe;

pub mod maps;

pub mod counter;

#[cfg(feature = "mutants")]
pub mod mutant;

#[cfg(feature = "user")]
#[expect(unsafe_code, reason = "`aya::Pod` is an unsafe trait")]
mod pod;
