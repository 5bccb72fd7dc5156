//! A gateway that responds to the handshakes of many peers.

use super::cluster::{PORT, SERVER};
use super::many::Many;
use super::{UP_DEADLINE, start};
use crate::bench::handshakes;
use ::tests::lab::Identity;
use ::tests::lab::binaries::Binaries;
use ::tests::lab::netns::Netns;
use ::tests::lab::process::Process;
use ::tests::lab::{status, wait};
use anyhow::{Context as _, Result};
use std::sync::Arc;

/// A running gateway, which is killed on drop.
#[derive(Debug)]
pub(in crate::bench) struct Responder {
    _process: Process,
    pid: u32,
    /// The gateway's public keys, by peer. Like in Liqo, a gateway has one key pair per peering.
    keys: Vec<[u8; 32]>,
    _identity: Arc<Identity>,
}

impl Responder {
    /// Starts the gateway in `netns` with the peers' public keys, and waits until the gateway has
    /// configured all peers.
    ///
    /// # Errors
    ///
    /// Returns an error if the gateway does not start.
    pub(in crate::bench) fn start(
        identity: &Arc<Identity>,
        netns: &Netns,
        peers: &[[u8; 32]],
    ) -> Result<Self> {
        let many = Many::new(identity, peers.len());
        let known = many.as_peers(None, peers);
        // The gateway reads them when it starts.
        let keys = many.keys(&SERVER)?;

        let program = Binaries::find().gateway;
        let mut process = start(identity, netns, &program, &SERVER, &known)?;
        let sockets = identity.run_dir();
        wait::until(UP_DEADLINE, "the gateway to configure its peers", || {
            let status = status::read(sockets, process.name());
            Ok(status.is_ok_and(|status| status::peer_count(&status) == peers.len()))
        })?;
        let pid = process.pid().context("the gateway has ended")?;

        Ok(Self {
            _process: process,
            pid,
            keys,
            _identity: Arc::clone(identity),
        })
    }
}

impl handshakes::Responder for Responder {
    fn port(&self) -> u16 {
        PORT
    }

    fn pid(&self) -> u32 {
        self.pid
    }

    fn key(&self, peer: usize) -> [u8; 32] {
        self.keys[peer]
    }
}
