//! `wireguard-go`, configured by `wg`: plain WireGuard of another make.

use crate::lab::Identity;
use crate::lab::key::{Key, base64};
use crate::lab::link::ip;
use crate::lab::netns::Netns;
use crate::lab::process::Process;
use crate::lab::wait;
use anyhow::{Context as _, Result};
use ipnet::Ipv4Net;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A WireGuard interface of `wireguard-go` with one peer.
#[derive(Debug)]
pub struct WireguardGo {
    process: Process,
    netns: Netns,
    device: String,
    key_file: PathBuf,
    key: Key,
}

impl WireguardGo {
    /// Starts it in a namespace, without a peer, listening on `port`; its files are the
    /// laboratory's that has this identity.
    ///
    /// # Errors
    ///
    /// Returns an error if the program is missing or does not get ready.
    pub fn start(identity: &Identity, netns: &Netns, number: u8, port: u16) -> Result<Self> {
        let device = format!("{}{number}", device_prefix(identity.id()));
        let directory = identity.run_dir().join(&device);
        let key = Key::open(&directory)?;
        let key_file = directory.join("wg");
        fs::write(&key_file, base64(&key.private())).context("failed to write a key")?;

        let logs = identity.run_dir().join("logs");
        fs::create_dir_all(&logs).context("failed to create the log directory")?;
        let log = logs.join(format!("{device}.log"));
        let mut process = Process::new(
            device.clone(),
            netns,
            "wireguard-go",
            ["--foreground", &device],
            log,
        );
        process.start()?;
        let socket = Path::new(SOCKET_DIR).join(format!("{device}.sock"));
        // The file alone is too early: `wg` removes a socket that does not answer yet.
        wait::until(START_TIMEOUT, "wireguard-go to be ready", || {
            Ok(UnixStream::connect(&socket).is_ok())
        })?;

        let this = Self {
            process,
            netns: netns.clone(),
            device,
            key_file,
            key,
        };
        let key_file = this.key_file.display().to_string();
        this.set(&["private-key", &key_file, "listen-port", &port.to_string()])?;

        Ok(this)
    }

    /// Its key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The name of its device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sets its only peer, which may use any address inside.
    ///
    /// # Errors
    ///
    /// Returns an error if `wg` refuses it.
    pub fn set_peer(&self, public_key: [u8; 32], endpoint: Option<SocketAddrV4>) -> Result<()> {
        let public_key = base64(&public_key);
        let endpoint = endpoint.map(|endpoint| endpoint.to_string());
        let mut args = vec!["peer", &public_key, "allowed-ips", "0.0.0.0/0"];
        if let Some(endpoint) = &endpoint {
            args.extend(["endpoint", endpoint]);
        }

        self.set(&args)
    }

    /// Forgets its peer, with all sessions.
    ///
    /// # Errors
    ///
    /// Returns an error if `wg` refuses it.
    pub fn remove_peer(&self, public_key: [u8; 32]) -> Result<()> {
        self.set(&["peer", &base64(&public_key), "remove"])
    }

    /// Moves to another UDP port.
    ///
    /// # Errors
    ///
    /// Returns an error if the port is taken.
    pub fn listen(&self, port: u16) -> Result<()> {
        self.set(&["listen-port", &port.to_string()])
    }

    /// Gives the device addresses and routes, and sets it up.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses one of them.
    pub fn configure(&self, mtu: u16, addresses: &[Ipv4Net], routes: &[Ipv4Net]) -> Result<()> {
        let device = &self.device;
        let mut commands = vec![format!("link set dev {device} mtu {mtu} up")];
        commands.extend(
            addresses
                .iter()
                .map(|address| format!("addr add {address} dev {device}")),
        );
        commands.extend(routes.iter().map(|route| {
            // The first address that is no tunnel address is the pod's.
            let source = addresses
                .iter()
                .map(Ipv4Net::addr)
                .find(|address| !address.is_link_local())
                .unwrap_or(Ipv4Addr::UNSPECIFIED);
            format!("route replace {route} dev {device} src {source}")
        }));

        ip(&self.netns, &commands)
    }

    /// Seconds since the epoch of the last handshake; 0 before the first.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not answer.
    pub fn latest_handshake(&self) -> Result<u64> {
        let text = self.show("latest-handshakes")?;
        let last = text.split_whitespace().last().unwrap_or("0");

        last.parse().context("no time of a handshake")
    }

    /// Bytes received and sent.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not answer.
    pub fn transferred(&self) -> Result<(u64, u64)> {
        let text = self.show("transfer")?;
        let numbers: Vec<u64> = text
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();

        match numbers[..] {
            [received, sent] => Ok((received, sent)),
            _ => Ok((0, 0)),
        }
    }

    fn show(&self, what: &str) -> Result<String> {
        self.netns.exec("wg", &["show", &self.device, what], "")
    }

    fn set(&self, args: &[&str]) -> Result<()> {
        let args = [&["set", &self.device], args].concat();
        self.netns.exec("wg", &args, "")?;

        Ok(())
    }
}

impl Drop for WireguardGo {
    fn drop(&mut self) {
        // It removes its socket itself only when it is asked to end.
        if let Err(error) = self.process.stop(STOP_TIMEOUT) {
            tracing::debug!(%error, "wireguard-go did not end by itself");
        }
    }
}

/// Where `wireguard-go` and `wg` meet.
pub(crate) const SOCKET_DIR: &str = "/var/run/wireguard";

/// What the names of a laboratory's WireGuard devices begin with: their sockets
/// share one directory, whatever their namespaces.
pub(crate) fn device_prefix(id: &str) -> String {
    format!("lqwg-{id}-")
}

const START_TIMEOUT: Duration = Duration::from_secs(5);

const STOP_TIMEOUT: Duration = Duration::from_secs(2);
