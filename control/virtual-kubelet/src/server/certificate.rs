//! The serving certificate, and the authorities of client certificates.
//!
//! ```text
//! controller   requests certificates, and follows the authorities (PURE)
//! request      the CertificateSigningRequest, and what became of it (PURE)
//! issue        keys and self-signed certificates; the only part that reads randomness
//! serving      the certificate of each TLS handshake
//! ```

pub(crate) use controller::{CertificateController, Issue};
pub(crate) use request::CertificateType;
pub(crate) use serving::Serving;

mod controller;
pub(crate) mod issue;
mod request;
mod serving;

#[cfg(test)]
mod tests;
