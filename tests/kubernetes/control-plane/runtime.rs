//! Tests of the control runtime against a real API server: leaders that fail, slow webhooks, and
//! failures of the API server.

mod admission;
mod audit;
mod clock;
mod copies;
mod credentials;
mod failures;
mod leader;
pub(crate) mod relay;
pub(crate) mod replica;

use crate::fixture::Suite;

pub(crate) fn add(suite: &mut Suite) {
    leader::add(suite);
    admission::add(suite);
    credentials::add(suite);
    failures::add(suite);
}
