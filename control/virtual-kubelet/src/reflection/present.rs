//! An object of the provider as the cache has it.

use super::kind::Kind;
use super::peering::Peering;
use super::summary::{Fingerprint, Summary};
use control_api::ShadowEndpointSlice;
use control_runtime::{Cache, Entry, Key, Ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};

/// An object of the provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present<'a> {
    pub(super) uid: &'a str,
    pub(super) fingerprint: &'a Fingerprint,
    /// Whether this controller has created it.
    pub(super) is_reflected: bool,
    pub(super) is_terminating: bool,
}

impl<'a> Present<'a> {
    /// Returns the object of a key.
    pub(super) fn find(
        cache: &'a Cache,
        peering: &Peering,
        (kind, key): (Kind, &Key),
    ) -> Option<Self> {
        let object = Ref::new(&peering.cluster(), &kind.remote(), key);
        Self::of(cache.entry(&object)?, peering, kind)
    }

    /// Returns the object of an entry.
    pub(super) fn of(entry: &'a Entry, peering: &Peering, kind: Kind) -> Option<Self> {
        match kind {
            Kind::Service => Some(Self::new(entry, entry.get::<Summary<Service>>()?, peering)),
            Kind::ConfigMap => Some(Self::new(
                entry,
                entry.get::<Summary<ConfigMap>>()?,
                peering,
            )),
            Kind::Secret => Some(Self::new(entry, entry.get::<Summary<Secret>>()?, peering)),
            Kind::EndpointSlice => {
                let summary = entry.get::<Summary<ShadowEndpointSlice>>()?;
                Some(Self::new(entry, summary, peering))
            }
        }
    }

    fn new<K>(entry: &'a Entry, summary: &'a Summary<K>, peering: &Peering) -> Self {
        Self {
            uid: &entry.uid,
            fingerprint: &summary.fingerprint,
            // Tokens of pods are those of the virtual node that runs the pod.
            is_reflected: summary.is_reflected(peering) && summary.tokens.is_none(),
            is_terminating: summary.is_terminating,
        }
    }
}
