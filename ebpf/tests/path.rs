//! Tests the eBPF programs on real devices: a VXLAN device and a TAP.
//!
//! The tests need root. All devices are in new network namespaces, which the kernel removes at the
//! end of the test.

#![deny(unsafe_code)]

#[cfg(test)]
mod path {
    mod lab;
    mod mirror;
    mod tap;

    mod guard;
    mod pins;
    mod traffic;
}
