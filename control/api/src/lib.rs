//! The custom resources, and the desired state that a fabric file or an API server gives.

#![forbid(unsafe_code)]

pub mod fabric;
