//! Loads the kernel programs and gives each map a typed wrapper.

#![forbid(unsafe_code)]

pub mod tables;

pub use tables::{Local, Outbound, Tables, Transit};
