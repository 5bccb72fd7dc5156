//! The serving certificate.

pub(crate) use serving::Serving;

pub(crate) mod issue;
mod serving;
