//! The underlay is the Ethernet segment of the nodes of all clusters.
//!
//! ```text
//!   machine (.255.254)         rome: .1.2 .1.3        milan: .2.2 .2.3
//!        |                          |                      |
//!    liqo-lab0                   bridge br1             bridge br2
//!        |                          | uplink               | uplink
//!        +-------------------- bridge br0 (.0.1) ----------+
//! ```
//!
//! An uplink is a veth pair that connects a cluster's bridge to the segment. To impair the network
//! of a cluster, [`fault`](crate::fault) replaces its uplink. The bridges are in a network
//! namespace without routes, so that no packet of a cluster leaves the machine.

use crate::host::{self, ip};
use crate::place;
use crate::spec::{NodeSpec, underlay_address};
use anyhow::{Context as _, Result, bail, ensure};
use ipnet::Ipv4Net;
use serde::Deserialize;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

/// The default of `--underlay`, which is the network of all nodes.
pub const DEFAULT: &str = "172.18.0.0/16";

/// The name of the network namespace that contains the bridges.
pub const NETNS: &str = "liqo-lab-underlay";

/// The file with the path of the state folder of the laboratory that owns the segment.
const OWNER: &str = "/run/liqo-lab-owner";

/// The machine's device on the segment.
pub const DEVICE: &str = "liqo-lab0";

/// The Ethernet segment on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Underlay {
    net: Ipv4Net,
}

impl Underlay {
    /// Returns the segment, if it exists.
    ///
    /// # Errors
    ///
    /// Returns an error if its saved network cannot be read.
    pub fn existing() -> Result<Option<Self>> {
        let path = place::state().join("underlay");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("failed to read the underlay's network"),
        };
        let net = text
            .trim()
            .parse()
            .with_context(|| format!("{} contains no network", path.display()))?;

        Ok(Some(Self { net }))
    }

    /// Creates the segment, or the missing parts of an existing one.
    ///
    /// # Errors
    ///
    /// Returns an error if the addresses are in use, or if another segment exists.
    pub fn ensure(requested: Option<Ipv4Net>) -> Result<Self> {
        let existing = Self::existing()?;
        if let Some(existing) = existing {
            if let Some(requested) = requested.filter(|requested| *requested != existing.net) {
                bail!(
                    "--underlay {requested}: existing clusters are on {}: take them down first",
                    existing.net
                );
            }
            // The check uses `ip`, because /sys may show the devices of another network namespace.
            if netns_exists(NETNS) && host::run("ip", &["link", "show", DEVICE]).is_ok() {
                return Ok(existing);
            }
        }
        // An incomplete segment is created again, with the network that was saved.
        let net = match requested.or(existing.map(Self::net)) {
            Some(net) => net,
            None => DEFAULT.parse().context("the default is a network")?,
        };
        ensure!(
            net.prefix_len() == 16 && net == net.trunc(),
            "--underlay {net}: use a network with a prefix length of 16, such as {DEFAULT}"
        );
        let underlay = Self { net };
        underlay.check_free()?;
        check_owner()?;
        remove_devices();
        underlay.create().context("failed to create the underlay")?;
        fs::write(place::state().join("underlay"), format!("{net}\n"))
            .context("failed to save the underlay's network")?;
        fs::write(OWNER, place::state().as_os_str().as_encoded_bytes())
            .context("failed to save the owner of the underlay")?;

        Ok(underlay)
    }

    /// Returns the network of the segment's addresses.
    pub fn net(self) -> Ipv4Net {
        self.net
    }

    /// Returns the machine's address on the segment.
    pub fn machine(self) -> Ipv4Addr {
        underlay_address(self.net, 255, 254)
    }

    /// Returns the address of the nodes' default gateway, which forwards no packets.
    pub fn gateway(self) -> Ipv4Addr {
        underlay_address(self.net, 0, 1)
    }

    /// Checks that the machine has no route to this network, such as a route of Docker.
    fn check_free(self) -> Result<()> {
        #[derive(Deserialize)]
        struct Route {
            dst: String,
            dev: Option<String>,
        }
        let text = host::run("ip", &["-json", "-4", "route", "show", "table", "all"])?;
        let routes: Vec<Route> = serde_json::from_str(&text).context("`ip` printed no routes")?;
        let taken = routes.into_iter().find_map(|route| {
            let device = route.dev.filter(|device| device != DEVICE)?;
            let net: Ipv4Net = match route.dst.parse() {
                Ok(net) => net,
                Err(_) => route.dst.parse::<Ipv4Addr>().ok()?.into(),
            };
            let taken =
                self.net.contains(&net) || (net.prefix_len() > 8 && net.contains(&self.net));
            taken.then_some((net, device))
        });
        if let Some((net, device)) = taken {
            bail!(
                "the underlay's network {} is in use: this machine has {net} on {device}; choose another with --underlay, such as 172.30.0.0/16",
                self.net
            );
        }

        Ok(())
    }

    fn create(self) -> Result<()> {
        add_netns(NETNS)?;
        let (gateway, machine) = (self.gateway(), self.machine());
        let inside = [
            "link set lo up".to_owned(),
            "link add br0 type bridge".to_owned(),
            format!("address add {gateway}/16 dev br0"),
            "address add fd00:172:18::1/64 dev br0 nodad".to_owned(),
            "link set br0 up".to_owned(),
        ];
        ip(Some(NETNS), &inside)?;
        // The setting exists only with br_netfilter, which must not filter bridged frames.
        let _ = host::run(
            "ip",
            &[
                "netns",
                "exec",
                NETNS,
                "sysctl",
                "-qw",
                "net.bridge.bridge-nf-call-iptables=0",
            ],
        );
        let outside = [
            format!("link add {DEVICE} type veth peer name machine netns {NETNS}"),
            format!("address add {machine}/16 dev {DEVICE}"),
            format!("address add fd00:172:18::ffff/64 dev {DEVICE} nodad"),
            format!("link set {DEVICE} up"),
        ];
        ip(None, &outside)?;
        ip(Some(NETNS), &["link set machine master br0 up"])
    }

    /// Creates the bridge and the uplink of the cluster with this number, if they do not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses a device.
    pub fn attach_cluster(self, number: u8) -> Result<()> {
        if has_device(NETNS, &bridge(number)) {
            return Ok(());
        }
        let bridge = bridge(number);
        ip(
            Some(NETNS),
            &[
                format!("link add {bridge} type bridge"),
                format!("link set {bridge} up"),
            ],
        )?;
        self.connect(number)
    }

    /// Creates the plain uplink of the cluster with this number.
    ///
    /// # Errors
    ///
    /// Returns an error if the uplink exists.
    pub fn connect(self, number: u8) -> Result<()> {
        ip(
            Some(NETNS),
            &[
                format!("link add up{number} type veth peer name dn{number}"),
                format!("link set up{number} master br0 up"),
                format!("link set dn{number} master {} up", bridge(number)),
            ],
        )
    }

    /// Returns whether the cluster with this number has its plain uplink.
    pub fn is_connected(self, number: u8) -> bool {
        // Both devices of a plain uplink are in this namespace, so `ip` shows the name of the peer
        // after `@`.
        host::run(
            "ip",
            &[
                "-n",
                NETNS,
                "-oneline",
                "link",
                "show",
                &format!("up{number}"),
            ],
        )
        .is_ok_and(|link| link.contains(&format!(" up{number}@dn{number}:")))
    }

    /// Removes the plain uplink of the cluster with this number.
    ///
    /// # Errors
    ///
    /// Returns an error if the uplink does not exist.
    pub fn disconnect(self, number: u8) -> Result<()> {
        ip(Some(NETNS), &[format!("link delete up{number}")])
    }

    /// Creates the network namespace of `node`, and connects it to its cluster's bridge, if it is
    /// not connected.
    ///
    /// The MAC address contains the IP address, so that neighbour entries remain valid when a
    /// cluster is created again.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses a device.
    pub fn attach_node(self, number: u8, node: &NodeSpec) -> Result<()> {
        let netns = node_netns(&node.name);
        let [a, b, c, d] = node.ip.octets();
        let port = port(node.ip);
        if !netns_exists(&netns) {
            // The kernel removes the devices of an earlier namespace asynchronously.
            let _ = ip(Some(NETNS), &[format!("link delete {port}")]);
            add_netns(&netns)?;
        }
        if has_device(NETNS, &port) {
            return Ok(());
        }
        ip(
            Some(NETNS),
            &[
                format!(
                    "link add {port} type veth peer name eth0 address 02:42:{a:02x}:{b:02x}:{c:02x}:{d:02x} netns {netns}"
                ),
                format!("link set {port} master {} up", bridge(number)),
            ],
        )?;
        let mut inside = vec![
            "link set lo up".to_owned(),
            format!("address add {}/16 dev eth0", node.ip),
            "link set eth0 up".to_owned(),
            // Processes in the node's network need a route to ClusterIPs, because the kernel looks
            // up a route before kube-proxy's rules translate the address. The gateway itself
            // forwards no packets.
            format!("route add default via {}", self.gateway()),
        ];
        if let Some(ip) = node.ip_v6 {
            inside.push(format!("address add {ip}/64 dev eth0 nodad"));
            inside.push("route add default via fd00:172:18::1".to_owned());
        }
        ip_in(&netns, &inside)
    }

    /// Disconnects a node from the segment, or reconnects it.
    ///
    /// # Errors
    ///
    /// Returns an error if the node has no device on the segment.
    pub fn set_port(self, node: Ipv4Addr, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        ip(Some(NETNS), &[format!("link set {} {state}", port(node))])
    }

    /// Removes the bridge of the cluster with this number. The cluster's nodes must be removed
    /// before.
    pub fn detach_cluster(self, number: u8) {
        for device in [format!("up{number}"), bridge(number)] {
            // The device may be missing.
            let _ = ip(Some(NETNS), &[format!("link delete {device}")]);
        }
    }

    /// Removes the segment.
    ///
    /// # Errors
    ///
    /// Returns an error if the network namespace cannot be removed.
    pub fn remove(self) -> Result<()> {
        remove_devices();
        // The file is in `/run`, so it disappears at the next boot even if this call fails.
        let _ = fs::remove_file(OWNER);
        let path = place::state().join("underlay");
        fs::remove_file(&path).with_context(|| format!("failed to remove {}", path.display()))
    }
}

/// Checks that no other laboratory has clusters. The names of devices are global, so a machine can
/// have only one laboratory.
fn check_owner() -> Result<()> {
    let Ok(owner) = fs::read_to_string(OWNER) else {
        return Ok(());
    };
    let own = Path::new(&owner) == place::state();
    let clusters = fs::read_dir(Path::new(&owner).join("clusters"));
    if !own && clusters.is_ok_and(|mut clusters| clusters.next().is_some()) {
        bail!(
            "the clusters of another laboratory, whose state is in {owner}, are up on this machine: set LIQO_LAB_STATE={owner}, or take them down"
        );
    }

    Ok(())
}

/// Removes the devices and the namespace of a segment, if they exist.
fn remove_devices() {
    // The device may be missing.
    let _ = host::run("ip", &["link", "delete", DEVICE]);
    if netns_exists(NETNS) {
        let _ = host::run("ip", &["netns", "delete", NETNS]);
    }
}

/// Returns the name of the bridge of the cluster with this number.
pub fn bridge(number: u8) -> String {
    format!("br{number}")
}

/// Returns the name of the device that connects a node to its cluster's bridge.
fn port(node: Ipv4Addr) -> String {
    let [.., number, host] = node.octets();
    format!("n{number}-{host}")
}

/// Returns the name of a node's network namespace, as `ip netns` shows it.
pub fn node_netns(node: &str) -> String {
    format!("liqo-lab-{node}")
}

/// Returns the names of a cluster's nodes that have a network namespace.
///
/// # Errors
///
/// Returns an error if the namespaces cannot be listed.
pub fn node_namespaces(cluster: &str) -> Result<Vec<String>> {
    let prefix = node_netns(&format!("{cluster}-"));
    let entries = match fs::read_dir("/run/netns") {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("failed to list the network namespaces"),
    };

    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| {
            let role = name.strip_prefix(&prefix)?;
            // The name of another cluster may begin with `cluster` and a hyphen.
            let number = role.strip_prefix("worker").unwrap_or("none");
            let ours = role == "control-plane" || number.bytes().all(|it| it.is_ascii_digit());
            ours.then(|| format!("{cluster}-{role}"))
        })
        .collect())
}

/// Returns whether a network namespace of this name exists.
pub fn netns_exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

/// Creates a network namespace.
///
/// # Errors
///
/// Returns an error if the namespace exists.
pub fn add_netns(name: &str) -> Result<()> {
    host::run("ip", &["netns", "add", name]).map(drop)
}

/// Removes a network namespace, if it exists.
///
/// # Errors
///
/// Returns an error if the namespace cannot be removed.
pub fn remove_netns(name: &str) -> Result<()> {
    if netns_exists(name) {
        host::run("ip", &["netns", "delete", name])?;
    }

    Ok(())
}

fn ip_in(netns: &str, commands: &[String]) -> Result<()> {
    ip(Some(netns), commands)
}

fn has_device(netns: &str, device: &str) -> bool {
    host::run("ip", &["-n", netns, "link", "show", device]).is_ok()
}
