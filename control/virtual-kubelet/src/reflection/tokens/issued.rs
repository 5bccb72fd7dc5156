//! Tokens that the API server of this cluster has issued, until their Secret is written.

use crate::reflection::token::{Token, TokenSpec};
use control_runtime::Key;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Difference between the requested and the granted lifetime of a token that the time of the request explains.
const TOLERANCE: Duration = Duration::from_secs(60);

/// Shortest interval between tokens for one pod. The provider chooses what its Secrets contain, and so when tokens are
/// missing there.
pub(super) const INTERVAL: Duration = Duration::from_secs(30);

/// Tokens by pod, and when the API server has issued the last ones.
#[derive(Default)]
pub(super) struct Issued {
    pods: BTreeMap<Key, Tokens>,
    last: BTreeMap<Key, Last>,
}

/// The last tokens of a pod.
struct Last {
    /// UID of the pod.
    uid: String,
    at: Timestamp,
    /// Shortest lifetime of the tokens, if it is below the requested one.
    granted: Option<Duration>,
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
        let last = self.last.entry(pod.clone()).or_insert_with(|| Last {
            uid: issued.uid.clone(),
            at: issued.requested_at,
            granted: None,
        });
        if last.uid != issued.uid || last.at != issued.requested_at {
            issued.uid.clone_into(&mut last.uid);
            (last.at, last.granted) = (issued.requested_at, None);
        }
        let lifetime = token.expiration.duration_since(issued.requested_at);
        let lifetime = Duration::try_from(lifetime).unwrap_or_default();
        if lifetime + TOLERANCE < requested(&spec) {
            let shortest = last.granted.get_or_insert(lifetime);
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
        let granted = self.last.get(pod).and_then(|it| it.granted);
        issued.tokens.retain(|spec, token| {
            let lifetime = granted.map_or(requested(spec), |it| it.min(requested(spec)));
            let rest = Duration::try_from(token.expiration.duration_since(now));
            rest.is_ok_and(|it| it > lifetime / 2)
        });

        &issued.tokens
    }

    /// Returns the shortest lifetime of a pod's tokens, if it is below the requested ones.
    pub(super) fn granted(&self, pod: &Key) -> Option<Duration> {
        self.last.get(pod)?.granted
    }

    /// Returns how long to wait before tokens of the pod with this UID are requested again.
    pub(super) fn wait(&self, (pod, uid): (&Key, &str), now: Timestamp) -> Option<Duration> {
        let last = self.last.get(pod).filter(|it| it.uid == uid)?;
        let elapsed = Duration::try_from(now.duration_since(last.at)).unwrap_or_default();
        INTERVAL.checked_sub(elapsed).filter(|it| !it.is_zero())
    }

    /// Drops the tokens of a pod, whose Secret was written.
    pub(super) fn written(&mut self, pod: &Key) {
        self.pods.remove(pod);
    }

    /// Drops everything about a pod.
    pub(super) fn forget(&mut self, pod: &Key) {
        self.pods.remove(pod);
        self.last.remove(pod);
    }
}

fn requested(spec: &TokenSpec) -> Duration {
    Duration::from_secs(u64::try_from(spec.expiration_seconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_an_earlier_pod_of_the_name_are_not_used() {
        let (pod, now) = (Key::new("shop", "web"), Timestamp::UNIX_EPOCH);
        let spec = TokenSpec {
            audience: None,
            expiration_seconds: 3600,
        };
        let token = Token {
            value: "x".to_owned(),
            expiration: now + Duration::from_secs(3600),
        };
        let mut issued = Issued::default();
        issued.request((&pod, "u"), now);
        issued.put(&pod, spec, token);

        assert_eq!(issued.valid((&pod, "u"), now).len(), 1);
        assert!(issued.valid((&pod, "v"), now).is_empty());
        assert!(issued.wait((&pod, "u"), now).is_some());
        assert!(issued.wait((&pod, "v"), now).is_none());
        let later = now + Duration::from_secs(1900);
        assert!(issued.valid((&pod, "u"), later).is_empty());
    }
}
