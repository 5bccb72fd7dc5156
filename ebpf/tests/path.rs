//! The programs on real devices: VXLAN on one side, a TAP on the other.
//!
//! Needs root. All devices are in new namespaces, which vanish with the test.

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
