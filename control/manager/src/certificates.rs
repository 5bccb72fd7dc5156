//! Serving certificates of the servers of this project that API servers connect to.
//!
//! ```text
//! server      the servers, and the objects by which API servers know their authorities (PURE)
//! decision    which certificates in a Secret are valid, and which to issue (PURE)
//! target      how an object states the authorities (PURE)
//! controller  writes the Secrets, and their authorities into these objects (PURE)
//! issue       creates keys and certificates; the only part that reads randomness
//! ```

pub(crate) use controller::{CertificateController, Settings};
pub(crate) use decision::{Data, TLS_CERTIFICATE, TLS_KEY, certified_key, provider};
pub(crate) use issue::issue;
pub(crate) use server::{METRIC_AGENT, WEBHOOKS};

#[cfg(test)]
pub(crate) use controller::registrations;
#[cfg(test)]
pub(crate) use decision::decide;

mod controller;
mod decision;
mod issue;
mod server;
mod target;

#[cfg(test)]
mod tests;
