//! Creates the gateway's network namespace and devices, and attaches the eBPF programs.
//!
//! ```text
//!  network namespace of the pod       network namespace of the gateway
//!  UDP sockets of engine and VXLAN    liqo-overlay  <- eBPF ->  liqo-tap  <-> engine
//! ```
//!
//! With [`Plan::persistent`], namespace, devices and programs outlive the process, and the next
//! start adopts them. Otherwise they end with the process. The gateway then pins and mounts
//! nothing, so that the default seccomp and AppArmor profiles permit the set-up.

use super::links::{self, Device, Overlay};
use super::netns::{self, Namespace};
use super::tap::{self, Tap};
use ebpf::{Datapath, SocketSteering, Steering, Tables, Trace};
use ebpf_common::settings::{OVERLAY_DEVICE, Settings, TAP_DEVICE};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// Mount point of the BPF file system.
const BPF_FS: &str = "/sys/fs/bpf";

/// MTU of the TAP in bytes, larger than the MTU of any peer. It does not limit super-packets.
const TAP_MTU: u32 = 9000;

/// Transmit queue length of the TAP in frames. A full queue of super-packets holds about 64 MB.
const TAP_QUEUE: u32 = 1000;

/// Bytes that VXLAN adds to a packet: IPv4, UDP, VXLAN and Ethernet headers.
const VXLAN_OVERHEAD: u32 = 50;

/// MTU of the overlay in bytes if no underlay device is up.
const OVERLAY_MTU: u32 = 1450;

/// An error during the set-up of namespace, devices or programs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Namespace(#[from] netns::Error),

    #[error(transparent)]
    Link(#[from] links::Error),

    #[error(transparent)]
    Tap(#[from] tap::Error),

    #[error("failed to prepare the kernel programs: {0}")]
    Programs(#[from] ebpf::Error),

    /// The network namespace of the calling thread cannot be opened.
    #[error("failed to open this process's network namespace: is /proc mounted?")]
    Current(#[source] io::Error),

    /// There is no BPF file system, which [`Plan::persistent`] needs for its pins.
    #[error(
        "failed to mount a BPF file system at {BPF_FS}: mount it beforehand (`mount -t bpf bpf {BPF_FS}`), or run with CAP_SYS_ADMIN"
    )]
    BpfFs(#[source] io::Error),
}

/// The configuration of namespace, devices and programs.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Name of this gateway, unique on the machine.
    pub(crate) instance: String,
    /// Whether namespace, devices and programs outlive the process.
    pub(crate) persistent: bool,
    /// MTU of the overlay in bytes; `None` for the MTU of the underlay minus [`VXLAN_OVERHEAD`].
    pub(crate) overlay_mtu: Option<u32>,
    /// Ports, identifiers and addresses that may collide with those of other software.
    pub(crate) settings: Settings,
    /// Number of lanes, at least 1.
    pub(crate) lanes: u8,
    /// Number of workers per lane, at least 1.
    pub(crate) workers: u8,
    /// Whether the programs report each dropped packet.
    pub(crate) log_drops: bool,
}

/// Namespace, devices and programs of a running gateway.
pub(crate) struct KernelParts {
    /// The network namespace. It ends with this value, unless [`Plan::persistent`] is set.
    pub(crate) namespace: Namespace,
    /// The queues of the TAP, one for each worker of each lane, ordered by worker, then by lane.
    pub(crate) taps: Vec<Tap>,
    pub(crate) datapath: Datapath,
    /// The stream of dropped packets; `None` without [`Plan::log_drops`].
    pub(crate) trace: Option<Trace>,
    /// The program that chooses the queue of the TAP for each packet; `None` with a single queue.
    pub(crate) steering: Option<Steering>,
    /// The program that chooses the socket for each datagram; `None` with a single socket.
    pub(crate) socket_steering: Option<SocketSteering>,
}

impl Plan {
    /// Creates namespace, devices and programs, or adopts those of an earlier process.
    ///
    /// Writes `tables` to the eBPF maps before the devices forward packets.
    ///
    /// # Errors
    ///
    /// Returns [`Error`], which names a missing capability, kernel module or mount, and the remedy.
    pub(crate) fn set_up(&self, tables: &Tables) -> Result<KernelParts, Error> {
        let pod = netns::current().map_err(Error::Current)?;
        let namespace = if self.persistent {
            mount_bpf_fs()?;
            Namespace::open_or_create(&namespace_name(&self.instance))?
        } else {
            Namespace::create_unnamed()?
        };
        let overlay = self.overlay(self.overlay_mtu()?);
        if !namespace.inside(|| self.adopt_overlay(&overlay, &pod))?? {
            links::create_overlay(&overlay, namespace.as_fd())?;
        }
        let set_up = || self.set_up_devices(&overlay, tables);
        let (taps, steering, mut datapath) = namespace.inside(set_up)??;

        Ok(KernelParts {
            namespace,
            taps,
            steering,
            trace: datapath.take_trace(),
            socket_steering: datapath.take_socket_steering(),
            datapath,
        })
    }

    /// Removes namespace, devices and pins; returns the names of the removed objects, and the
    /// errors.
    ///
    /// Continues after an error.
    pub(crate) fn remove(&self) -> (Vec<String>, Vec<anyhow::Error>) {
        let mut removed = Vec::new();
        let mut errors = Vec::new();
        let pins = pin_directory(&self.instance);
        if pins.exists() {
            match Datapath::cleanup(&pins) {
                Ok(()) => removed.push(format!("pins {}", pins.display())),
                Err(error) => errors.push(error.into()),
            }
        }
        // All instances share the parent directory, which can be removed only when it is empty.
        if let Some(parent) = pins.parent() {
            let _ = std::fs::remove_dir(parent);
        }
        match self.remove_namespace() {
            Ok(Some(done)) => removed.extend(done),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }

        (removed, errors)
    }

    /// Creates the TAP, configures both devices, and attaches the programs, inside the namespace.
    fn set_up_devices(
        &self,
        overlay: &Overlay,
        tables: &Tables,
    ) -> Result<(Vec<Tap>, Option<Steering>, Datapath), Error> {
        let mark = self.mark();
        let first = Tap::open(TAP_DEVICE)?;
        links::configure(TAP_DEVICE, &mark, TAP_MTU, TAP_QUEUE, 0)?;
        if self.persistent {
            first.persist(TAP_DEVICE)?;
        }
        let mut taps = vec![first];
        for _ in 1..u32::from(self.lanes) * u32::from(self.workers) {
            taps.push(Tap::open(TAP_DEVICE)?);
        }

        let mut options = ebpf::Options::new(OVERLAY_DEVICE, TAP_DEVICE);
        options.pin_dir = self.persistent.then(|| pin_directory(&self.instance));
        options.settings = self.settings;
        options.log = self.log_drops;
        options.lanes = self.lanes.into();
        options.workers = self.workers.into();
        // Unit tests are threads of one process, which open files during the load.
        options.skip_kernel_types = !cfg!(test);
        #[cfg(feature = "mutants")]
        {
            options.mutant = mutant();
        }
        let mut datapath = Datapath::attach(options)?;
        let steering = datapath.take_steering();
        if let (Some(tap), Some(steering)) = (taps.first(), &steering) {
            tap.steer(TAP_DEVICE, steering.program())?;
        }
        // The programs of an earlier process may use maps of another layout. In this case, the call
        // also replaces the programs.
        datapath.apply(tables)?;
        links::configure(OVERLAY_DEVICE, &mark, overlay.mtu, TAP_QUEUE, overlay.port)?;

        Ok((taps, steering, datapath))
    }

    /// Returns whether the namespace has an overlay device that the gateway can use.
    ///
    /// Deletes an overlay device if its port differs from the configured port, or if its UDP socket
    /// is not in the namespace `pod`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Link`], before any change, if TAP or overlay device do not belong to this
    /// instance.
    fn adopt_overlay(&self, overlay: &Overlay, pod: &File) -> Result<bool, Error> {
        if let Some(tap) = links::find(TAP_DEVICE)? {
            self.refuse_foreign(&tap, TAP_DEVICE)?;
        }
        let found = links::find(&overlay.name)?;
        if let Some(device) = &found {
            self.refuse_foreign(device, &overlay.name)?;
        }
        links::disable_ipv6();
        let Some(device) = found else {
            return Ok(false);
        };
        // With a socket in another namespace or at another port, the device would receive no
        // packets.
        if device.serves(overlay, links::namespace_id(pod)?) {
            return Ok(true);
        }

        links::delete(&device)?;
        Ok(false)
    }

    fn refuse_foreign(&self, device: &Device, name: &str) -> Result<(), links::Error> {
        if self.is_ours(device) {
            return Ok(());
        }
        Err(links::Error::Foreign {
            name: name.to_owned(),
            namespace: namespace_name(&self.instance),
            mark: self.mark(),
        })
    }

    fn is_ours(&self, device: &Device) -> bool {
        device.is_ours(&self.mark()) || device.is_unfinished(&self.overlay(OVERLAY_MTU))
    }

    fn overlay(&self, mtu: u32) -> Overlay {
        Overlay {
            name: OVERLAY_DEVICE.into(),
            port: self.settings.overlay_port,
            mac: self.settings.gateway_mac,
            mtu,
        }
    }

    fn remove_namespace(&self) -> anyhow::Result<Option<Vec<String>>> {
        let name = namespace_name(&self.instance);
        let Some(namespace) = Namespace::open(&name)? else {
            return Ok(None);
        };
        let (mut removed, foreign) = namespace.inside(|| self.remove_devices())??;
        if let Some(device) = foreign.first() {
            anyhow::bail!("namespace {name} stays: the device {device} in it is not ours");
        }
        namespace.remove()?;
        removed.push(format!("namespace {name}"));

        Ok(Some(removed))
    }

    /// Deletes the devices of this instance.
    ///
    /// Returns the deleted devices, and the names of the namespace's other devices.
    fn remove_devices(&self) -> Result<(Vec<String>, Vec<String>), links::Error> {
        let mut removed = Vec::new();
        let mut foreign = Vec::new();
        for name in links::names()? {
            if name == "lo" {
                continue;
            }
            match links::find(&name)? {
                Some(device) if self.is_ours(&device) => {
                    links::delete(&device)?;
                    removed.push(format!("device {name}"));
                }
                Some(_) => foreign.push(name),
                None => {}
            }
        }

        Ok((removed, foreign))
    }

    fn overlay_mtu(&self) -> Result<u32, links::Error> {
        if let Some(mtu) = self.overlay_mtu {
            return Ok(mtu);
        }
        let underlay = links::underlay_mtu()?;
        Ok(underlay.map_or(OVERLAY_MTU, |mtu| mtu.saturating_sub(VXLAN_OVERHEAD)))
    }

    /// Returns the interface alias that marks the devices of this instance.
    fn mark(&self) -> String {
        format!("liqo gateway {}", self.instance)
    }
}

/// Returns the name of the network namespace of an instance.
pub(crate) fn namespace_name(instance: &str) -> String {
    format!("liqo-{instance}")
}

fn pin_directory(instance: &str) -> PathBuf {
    Path::new(BPF_FS).join("liqo").join(instance)
}

fn mount_bpf_fs() -> Result<(), Error> {
    if statfs(BPF_FS).is_ok_and(|stat| stat.filesystem_type() == BPF_FS_MAGIC) {
        return Ok(());
    }
    mount(
        Some("bpf"),
        BPF_FS,
        Some("bpf"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        None::<&str>,
    )
    .map_err(|errno| Error::BpfFs(errno.into()))?;
    tracing::info!(path = BPF_FS, "mounted the BPF file system");

    Ok(())
}

#[cfg(feature = "mutants")]
fn mutant() -> Option<String> {
    std::env::var(crate::mutant::VARIABLE)
        .ok()
        .filter(|name| ebpf_common::mutant::Mechanism::named(name).is_some())
}

#[cfg(test)]
pub(super) mod tests;
