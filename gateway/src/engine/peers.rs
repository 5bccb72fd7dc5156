//! All peers, found by index in constant time and by keys at a handshake.

use super::peer::Peer;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

#[derive(Default)]
pub(super) struct Peers {
    by_index: Vec<Option<Box<Peer>>>,
    /// Index of each peer, by the local public key and the public key of the peer.
    by_keys: BTreeMap<([u8; 32], [u8; 32]), u16>,
}

impl Peers {
    pub(super) fn insert(&mut self, peer: Peer) {
        let index = peer.config.index;
        self.by_keys
            .insert((peer.local_key, peer.config.public_key), index);
        let place = usize::from(index);
        if place >= self.by_index.len() {
            self.by_index.resize_with(place + 1, || None);
        }
        self.by_index[place] = Some(Box::new(peer));
    }

    pub(super) fn remove(&mut self, index: u16) -> Option<Peer> {
        let peer = *self.by_index.get_mut(usize::from(index))?.take()?;
        let keys = (peer.local_key, peer.config.public_key);
        if self.by_keys.get(&keys) == Some(&index) {
            self.by_keys.remove(&keys);
        }

        Some(peer)
    }

    #[inline]
    pub(super) fn get(&self, index: u16) -> Option<&Peer> {
        self.by_index.get(usize::from(index))?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut Peer> {
        self.by_index.get_mut(usize::from(index))?.as_deref_mut()
    }

    /// Returns the index of the peer with the public key `remote` and the local public key `local`.
    pub(super) fn by_keys(&self, local: [u8; 32], remote: [u8; 32]) -> Option<u16> {
        self.by_keys.get(&(local, remote)).copied()
    }

    /// Records an initiation with an unknown public key as handshake evidence of all peers that use
    /// the local key `local`, because any of them may have sent it.
    pub(super) fn note_unknown_key(&mut self, local: [u8; 32], from: IpAddr, now: Instant) {
        let peers = self.by_keys.range((local, [0; 32])..=(local, [0xff; 32]));
        for index in peers.map(|(_, index)| usize::from(*index)) {
            if let Some(Some(peer)) = self.by_index.get_mut(index) {
                peer.evidence.unknown_keys.note(from, now);
            }
        }
    }

    /// Returns all peers, ordered by index.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.by_index.iter().filter_map(|peer| peer.as_deref())
    }

    pub(super) fn indices(&self) -> impl Iterator<Item = u16> {
        self.iter().map(|peer| peer.config.index)
    }
}
