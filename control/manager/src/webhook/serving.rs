//! The certificate of each TLS handshake: that of the Secret in the cache.

use crate::certificates::{Data, TLS_CERTIFICATE, TLS_KEY, WEBHOOKS, certified_key};
use control_runtime::{CacheReader, Key};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

/// Reads the Secret in the cache at each handshake, so that a renewed certificate is served at once.
pub(super) struct ServingCertificate {
    cache: CacheReader,
    secret: Key,
    last: Mutex<Option<Loaded>>,
}

/// A certificate with the content of the Secret that it was parsed from.
struct Loaded {
    content: [Option<ByteString>; 2],
    key: Option<Arc<CertifiedKey>>,
}

impl ServingCertificate {
    pub(super) fn new(cache: CacheReader, namespace: &str) -> Self {
        Self {
            cache,
            secret: Key::new(namespace, WEBHOOKS.secret),
            last: Mutex::default(),
        }
    }

    /// Returns the certificate. If the Secret is gone or invalid, this is the last valid one.
    pub(super) fn current(&self) -> Option<Arc<CertifiedKey>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = self.cache.read();
        let secret = cache.local::<Secret>(&self.secret);
        let Some(data) = secret.and_then(|it| it.data.as_ref()) else {
            return last.as_ref().and_then(|it| it.key.clone());
        };
        let is_current = |it: &Loaded| {
            let [chain, key] = &it.content;
            chain.as_ref() == data.get(TLS_CERTIFICATE) && key.as_ref() == data.get(TLS_KEY)
        };
        match last.as_ref().filter(|it| is_current(it)) {
            Some(last) => last.key.clone(),
            None => {
                let before = last.take().and_then(|it| it.key);
                let key = parse(data, before);
                let content = [TLS_CERTIFICATE, TLS_KEY].map(|it| data.get(it).cloned());
                *last = Some(Loaded {
                    content,
                    key: key.clone(),
                });
                key
            }
        }
    }
}

fn parse(data: &Data, before: Option<Arc<CertifiedKey>>) -> Option<Arc<CertifiedKey>> {
    let secret = WEBHOOKS.secret;
    match certified_key(data) {
        Some(key) => {
            tracing::info!(secret, "serving webhooks with a new certificate");
            Some(Arc::new(key))
        }
        None => {
            tracing::warn!(secret, "the certificate is invalid: keeping the last one");
            before
        }
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate")
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}
