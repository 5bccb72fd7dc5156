//! The programs on real devices: VXLAN on one side, a TAP on the other.
//!
//! Needs root, and leaves nothing: everything is in namespaces of its own.

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
