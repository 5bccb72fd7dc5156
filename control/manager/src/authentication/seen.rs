//! When this process has first seen objects.
//!
//! The clocks of this process and of the API server may differ, so waits for another party do not count from the times
//! that the API server writes.

use control_credentials::Certificate;
use control_runtime::{Env, Key};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time after which an object that is not waited for any more is forgotten.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Most objects that are waited for at a time. Consumers create some of them, so further ones displace the oldest, whose
/// wait begins anew.
const WAITING_MAX: usize = 10_000;

/// When this process has first seen objects.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The certificates, by their Secrets.
    certificates: BTreeMap<Key, (Certificate, Timestamp)>,
    /// Objects that wait for another party, by UID.
    waiting: BTreeMap<String, Instant>,
}

impl Seen {
    /// Returns when this process has first seen the certificate of a Secret.
    ///
    /// A certificate is renewed after that at the earliest, also if its lifetime is so short that its renewal is always due.
    pub(super) fn certificate(
        &mut self,
        secret: &Key,
        certificate: Certificate,
        env: &Env<'_>,
    ) -> Timestamp {
        match self.certificates.get(secret) {
            Some((seen, since)) if *seen == certificate => *since,
            Some(_) | None => {
                let seen = (certificate, env.now);
                self.certificates.insert(secret.clone(), seen);
                env.now
            }
        }
    }

    /// Forgets the certificate of a Secret that is deleted.
    pub(super) fn forget(&mut self, secret: &Key) {
        self.certificates.remove(secret);
    }

    fn make_room(&mut self, now: Instant) {
        if self.waiting.len() < WAITING_MAX {
            return;
        }
        self.waiting
            .retain(|_, since| now.saturating_duration_since(*since) < KEPT);
        let oldest = self.waiting.iter().min_by_key(|(_, since)| **since);
        let oldest = oldest.map(|(uid, _)| uid.clone());
        if let Some(uid) = oldest.filter(|_| self.waiting.len() >= WAITING_MAX) {
            self.waiting.remove(&uid);
        }
    }

    /// Returns the rest of the time for which the object with this UID may wait; `None` if it has passed.
    pub(super) fn remaining(
        &mut self,
        uid: Option<&str>,
        limit: Duration,
        env: &Env<'_>,
    ) -> Option<Duration> {
        let uid = uid.unwrap_or_default();
        let since = match self.waiting.get(uid) {
            Some(since) => *since,
            None => {
                self.make_room(env.at);
                self.waiting.insert(uid.to_owned(), env.at);
                env.at
            }
        };
        let rest = limit.saturating_sub(env.at.saturating_duration_since(since));

        (!rest.is_zero()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_that_are_waited_for_are_limited() {
        let mut seen = Seen::default();
        let mut random = || [0; 32];
        let start = Instant::now();
        for number in 0..WAITING_MAX as u64 + 10 {
            let env = Env {
                at: start + Duration::from_millis(number),
                now: Timestamp::UNIX_EPOCH,
                random: &mut random,
            };
            seen.remaining(Some(&number.to_string()), KEPT, &env);
        }
        assert_eq!(seen.waiting.len(), WAITING_MAX);
        assert!(!seen.waiting.contains_key("9") && seen.waiting.contains_key("10"));
    }
}
