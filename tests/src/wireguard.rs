//! Runs `wireguard-go`, an independent implementation of WireGuard, and configures it with `wg`.

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
    /// Starts `wireguard-go` in a namespace. It listens on `port`, and has no peer yet.
    ///
    /// `number` must be unique in the laboratory of `identity`.
    ///
    /// # Errors
    ///
    /// Returns an error if the program is missing, or not ready in time.
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
        // wireguard-go creates the socket file before it listens. Until it listens, `wg` would
        // remove the file, because the socket refuses connections.
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

    /// Returns the key pair of the interface.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the name of the WireGuard device, which is unique on the machine.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the process `wireguard-go`, for example to kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Adds a peer whose allowed IPs are 0.0.0.0/0. There can be only one such peer.
    ///
    /// # Errors
    ///
    /// Returns an error if `wg` fails.
    pub fn set_peer(&self, public_key: [u8; 32], endpoint: Option<SocketAddrV4>) -> Result<()> {
        let public_key = base64(&public_key);
        let endpoint = endpoint.map(|endpoint| endpoint.to_string());
        let mut args = vec!["peer", &public_key, "allowed-ips", "0.0.0.0/0"];
        if let Some(endpoint) = &endpoint {
            args.extend(["endpoint", endpoint]);
        }

        self.set(&args)
    }

    /// Removes the peer with this public key, and all its sessions.
    ///
    /// # Errors
    ///
    /// Returns an error if `wg` fails.
    pub fn remove_peer(&self, public_key: [u8; 32]) -> Result<()> {
        self.set(&["peer", &base64(&public_key), "remove"])
    }

    /// Changes the UDP port on which the interface listens.
    ///
    /// # Errors
    ///
    /// Returns an error if the port is in use.
    pub fn listen(&self, port: u16) -> Result<()> {
        self.set(&["listen-port", &port.to_string()])
    }

    /// Sets the device up with an MTU in bytes, addresses, and routes through the device.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses an address or a route.
    pub fn configure(&self, mtu: u16, addresses: &[Ipv4Net], routes: &[Ipv4Net]) -> Result<()> {
        let device = &self.device;
        let mut commands = vec![format!("link set dev {device} mtu {mtu} up")];
        commands.extend(
            addresses
                .iter()
                .map(|address| format!("addr add {address} dev {device}")),
        );
        commands.extend(routes.iter().map(|route| {
            // The source of packets through the device is the pod's address, which is the first
            // address that is not link-local.
            let source = addresses
                .iter()
                .map(Ipv4Net::addr)
                .find(|address| !address.is_link_local())
                .unwrap_or(Ipv4Addr::UNSPECIFIED);
            format!("route replace {route} dev {device} src {source}")
        }));

        ip(&self.netns, &commands)
    }

    /// Returns the Unix time of the last handshake in seconds, or 0 before the first handshake.
    ///
    /// # Errors
    ///
    /// Returns an error if `wg` fails.
    pub fn latest_handshake(&self) -> Result<u64> {
        let text = self.show("latest-handshakes")?;
        let last = text.split_whitespace().last().unwrap_or("0");

        last.parse().context("wg printed no handshake time")
    }

    /// Returns the numbers of received and sent bytes, which `wg show transfer` prints.
    ///
    /// # Errors
    ///
    /// Returns an error if `wg` fails.
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
        // `wireguard-go` removes its socket only after SIGTERM.
        if let Err(error) = self.process.stop(STOP_TIMEOUT) {
            tracing::debug!(%error, "wireguard-go ignored SIGTERM");
        }
    }
}

/// Directory of the sockets through which `wg` configures `wireguard-go`.
pub(crate) const SOCKET_DIR: &str = "/var/run/wireguard";

/// Returns the prefix of the names of a laboratory's WireGuard devices.
///
/// The prefix contains the laboratory's id, because the sockets of all namespaces are in the same
/// directory.
pub(crate) fn device_prefix(id: &str) -> String {
    format!("lqwg-{id}-")
}

const START_TIMEOUT: Duration = Duration::from_secs(5);

const STOP_TIMEOUT: Duration = Duration::from_secs(2);
