//! Tokens that the API server of this cluster has issued, until their Secret is written.

use crate::reflection::token::{Token, TokenSpec};
use control_runtime::Key;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Difference between the requested and the granted lifetime of a token that the time of the request explains.
const TOLERANCE: Duration = Duration::from_secs(60);

/// Tokens by pod, and the lifetimes that the API server has granted.
#[derive(Default)]
pub(super) struct Issued {
    pods: BTreeMap<Key, Tokens>,
    /// Shortest lifetime of a pod's tokens, where it is below the requested one.
    granted: BTreeMap<Key, Duration>,
}

struct Tokens {
    /// UID of the pod.
    uid: String,
    requested_at: Timestamp,
    tokens: BTreeMap<TokenSpec, Token>,
}

impl Issued {
    /// Notes that tokens of the pod with this UID are requested.
    pub(super) fn request(&mut self, (pod, uid): (&Key, &str), now: Timestamp) {
        self.granted.remove(pod);
        let valid = self.valid((pod, uid), now).clone();
        let tokens = Tokens {
            uid: uid.to_owned(),
            requested_at: now,
            tokens: valid,
        };
        self.pods.insert(pod.clone(), tokens);
    }

    /// Keeps a token that was requested.
    pub(super) fn put(&mut self, pod: &Key, spec: TokenSpec, token: Token) {
        let Some(issued) = self.pods.get_mut(pod) else {
            return;
        };
        let lifetime = token.expiration.duration_since(issued.requested_at);
        let lifetime = Duration::try_from(lifetime).unwrap_or_default();
        if lifetime + TOLERANCE < requested(&spec) {
            let shortest = self.granted.entry(pod.clone()).or_insert(lifetime);
            *shortest = lifetime.min(*shortest);
        }
        issued.tokens.insert(spec, token);
    }

    /// Returns the tokens of the pod with this UID of whose lifetime more than half is left. The others were not written
    /// in time, for example because the provider was unreachable.
    pub(super) fn valid(
        &mut self,
        (pod, uid): (&Key, &str),
        now: Timestamp,
    ) -> &BTreeMap<TokenSpec, Token> {
        static NONE: BTreeMap<TokenSpec, Token> = BTreeMap::new();
        let Some(issued) = self.pods.get_mut(pod).filter(|it| it.uid == uid) else {
            return &NONE;
        };
        let granted = self.granted.get(pod).copied();
        issued.tokens.retain(|spec, token| {
            let lifetime = granted.map_or(requested(spec), |it| it.min(requested(spec)));
            let rest = Duration::try_from(token.expiration.duration_since(now));
            rest.is_ok_and(|it| it > lifetime / 2)
        });

        &issued.tokens
    }

    /// Returns the shortest lifetime of a pod's tokens, if it is below the requested ones.
    pub(super) fn granted(&self, pod: &Key) -> Option<Duration> {
        self.granted.get(pod).copied()
    }

    /// Drops the tokens of a pod, whose Secret was written.
    pub(super) fn written(&mut self, pod: &Key) {
        self.pods.remove(pod);
    }

    /// Drops everything about a pod.
    pub(super) fn forget(&mut self, pod: &Key) {
        self.pods.remove(pod);
        self.granted.remove(pod);
    }
}

fn requested(spec: &TokenSpec) -> Duration {
    Duration::from_secs(u64::try_from(spec.expiration_seconds).unwrap_or_default())
}
