//! All sessions, found by id and by local index in constant time.

use super::index;
use super::interface::SessionId;
use super::session::Session;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Upper limit of sessions per lane. It allows 32 sessions with each of 1,000 peers: between four
/// local and four remote replicas, at two addresses per replica.
const SESSIONS_MAX: usize = 32_768;

#[derive(Default)]
pub(super) struct Sessions {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Position in `places` of the session with each slot. The map is never iterated, so its order
    /// cannot make the engine nondeterministic.
    slots: HashMap<u32, u32, BuildHasherDefault<Fibonacci>>,
}

#[derive(Default)]
struct Place {
    /// Number of sessions that have used this place. It makes the id of a removed session invalid.
    generation: u32,
    session: Option<Box<Session>>,
}

impl Sessions {
    /// Adds a session, and sets its id. Returns `None` if the limit is reached. The slot must be
    /// free.
    pub(super) fn insert(&mut self, mut session: Session) -> Option<SessionId> {
        if self.slots.len() >= SESSIONS_MAX {
            return None;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).expect("places are limited")
        });
        let entry = &mut self.places[place as usize];
        entry.generation = entry.generation.wrapping_add(1);
        let id = SessionId {
            place,
            generation: entry.generation,
        };

        session.id = id;
        self.slots.insert(session.slot, place);
        entry.session = Some(Box::new(session));

        Some(id)
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let entry = self.places.get_mut(id.place as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let session = *entry.session.take()?;
        self.slots.remove(&session.slot);
        self.free.push(id.place);

        Some(session)
    }

    #[inline]
    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        let entry = self.places.get(id.place as usize)?;
        if entry.generation != id.generation {
            return None;
        }

        entry.session.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let entry = self.places.get_mut(id.place as usize)?;
        if entry.generation != id.generation {
            return None;
        }

        entry.session.as_deref_mut()
    }

    /// Returns the session of a receiver index.
    #[inline]
    pub(super) fn by_index(&mut self, index: u32) -> Option<&mut Session> {
        let place = *self.slots.get(&index::slot(index))?;

        self.places[place as usize].session.as_deref_mut()
    }

    pub(super) fn is_slot_free(&self, slot: u32) -> bool {
        !self.slots.contains_key(&slot)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns all sessions in the order of `places`, which is not the order of their creation.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.places
            .iter()
            .filter_map(|place| place.session.as_deref())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.places
            .iter_mut()
            .filter_map(|place| place.session.as_deref_mut())
    }
}

/// Fibonacci hashing. The hashed keys are slots, which this gateway draws at random, so an attacker
/// cannot cause collisions.
#[derive(Default)]
struct Fibonacci(u64);

impl Hasher for Fibonacci {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, key: u32) {
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
