//! Controls the eBPF programs in the kernel: loads and attaches them, and updates their maps.

use crate::error::Error;
use crate::hook::{Hook, Mechanism};
use crate::image::Image;
use crate::maps::{Changes, Maps};
use crate::object::{self, Constants, OVERLAY_PROGRAM, TAP_PROGRAM};
use crate::pin::{self, Pins};
use crate::socket_steering::SocketSteering;
use crate::steering::Steering;
use crate::tables::{TableChanges, Tables};
use crate::trace::Trace;
use aya::Ebpf;
use ebpf_common::probe::{Heartbeat, LastRequest};
use ebpf_common::settings::Settings;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
};
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Devices, pins and settings of one gateway.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the overlay device, in the network namespace of the calling thread.
    pub overlay: String,
    /// Name of the TAP, in the network namespace of the calling thread.
    pub tap: String,
    /// Directory on a BPF file system, in which the maps and links are pinned.
    ///
    /// Pinned maps and links outlive the process. Without a directory, the kernel removes them
    /// when the process ends.
    pub pin_dir: Option<PathBuf>,
    /// Ports, addresses and identifiers that the programs use.
    pub settings: Settings,
    /// Whether the programs log each dropped packet; see [`Datapath::take_trace`].
    pub log: bool,
    /// Number of lanes of the engine, at least 1.
    pub lanes: u32,
    /// Number of workers of each lane, at least 1.
    pub workers: u32,
    /// Whether to load the object file without the kernel's BTF.
    ///
    /// Without BTF, the load takes 15 MB less memory. For some microseconds during the load, no
    /// thread of the process can open files.
    pub skip_kernel_types: bool,
    /// Name of the mechanism that a mutation test switches off, if any.
    #[cfg(feature = "mutants")]
    pub mutant: Option<String>,
}

impl Options {
    /// Creates options for the overlay device and the TAP, with defaults for all other fields.
    pub fn new(overlay: impl Into<String>, tap: impl Into<String>) -> Self {
        Self {
            overlay: overlay.into(),
            tap: tap.into(),
            pin_dir: None,
            settings: Settings::default(),
            log: false,
            lanes: 1,
            workers: 1,
            skip_kernel_types: false,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// The loaded eBPF programs of one gateway, and their maps.
pub struct Datapath {
    options: Options,
    maps: Maps,
    trace: Option<Trace>,
    steering: Option<Steering>,
    socket_steering: Option<SocketSteering>,
    pins: Option<Pins>,
    /// The loaded programs; `None` after they have been attached.
    ///
    /// If an earlier process left programs whose maps have another layout, the new programs are
    /// attached only after the new maps have been filled.
    waiting: Option<Ebpf>,
    /// The attached programs; empty while `waiting` is set.
    hooks: Vec<Hook>,
    /// A socket without traffic. The programs reply to probes only while it is open.
    _liveness_socket: OwnedFd,
}

impl Datapath {
    /// Loads and attaches the programs, and replaces the programs of an earlier process.
    ///
    /// With [`Options::pin_dir`], the new programs take over the pinned maps and links, so that
    /// traffic does not stop. If the maps of the earlier programs have another layout, these
    /// programs stay attached until the first [`Datapath::apply`] has filled the new maps.
    ///
    /// # Errors
    ///
    /// Returns an [`Error`] that names the missing privilege, kernel feature, device or mount.
    pub fn attach(options: Options) -> Result<Self, Error> {
        let constants = constants(&options)?;
        let pins = options.pin_dir.as_deref().map(Pins::open).transpose()?;
        let is_adopting = match &pins {
            Some(pins) => {
                pins.remove_foreign_maps(Maps::sizes)?;
                pins.has_maps()
            }
            None => false,
        };
        let mut ebpf = object::load(&constants, pins.as_ref())?;
        let mut maps = Maps::take(&mut ebpf)?;
        // A pinned heartbeat describes an earlier process, so replace it.
        maps.beat(&Heartbeat::new(false, 0, []))?;
        let is_shared = options.lanes > 1 || options.workers > 1;
        let steering = is_shared.then(|| Steering::take(&mut ebpf)).transpose()?;
        let socket_steering = is_shared
            .then(|| SocketSteering::take(&mut ebpf))
            .transpose()?;
        let liveness_socket = open_liveness_socket(options.settings.probe_port)?;
        let trace = (options.log).then(|| Trace::take(&mut ebpf)).transpose()?;

        let is_replacing = pins.as_ref().is_some_and(|pins| {
            ATTACH_POINTS
                .iter()
                .any(|point| pins.link(point.pin).exists())
        });
        let mut datapath = Self {
            options,
            maps,
            trace,
            steering,
            socket_steering,
            pins,
            waiting: Some(ebpf),
            hooks: Vec::new(),
            _liveness_socket: liveness_socket,
        };
        if is_adopting || !is_replacing {
            datapath.attach_waiting()?;
        }

        Ok(datapath)
    }

    /// Updates the maps to `tables` in place, without writing unchanged entries.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] without changing the maps if the tables are inconsistent or exceed a
    /// limit. Returns [`Error::Map`] if the kernel refuses an update, and the errors of
    /// [`Datapath::attach`] if the programs were not attached yet.
    pub fn apply(&mut self, tables: &Tables) -> Result<Changes, Error> {
        let image = Image::new(tables, &self.options.settings)?;
        let changes = self.maps.apply(image)?;
        self.attach_waiting()?;

        Ok(changes)
    }

    /// Updates the maps by `changes` of the tables of the last call, in time for the changed entries.
    ///
    /// Applies the tables that `all` returns, those after the changes, if the contents of the maps
    /// are unknown after an error of the kernel, or if the changes do not fit to them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Datapath::apply`].
    pub fn update(
        &mut self,
        changes: &TableChanges,
        all: impl FnOnce() -> Tables,
    ) -> Result<Changes, Error> {
        let TableChanges { removed, added } = changes;
        let settings = &self.options.settings;
        let image = self.maps.applied();
        let changes = image.and_then(|it| it.changes(removed, added, settings).ok());
        let Some(changes) = changes else {
            return self.apply(&all());
        };
        let changes = self.maps.update(changes)?;
        self.attach_waiting()?;

        Ok(changes)
    }

    /// Removes a node from the kernel's map only, so that the kernel refuses the next removal: for
    /// tests of failures.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the map lacks the node.
    #[cfg(feature = "test-run")]
    pub fn lose_node(&mut self, node: Ipv4Addr) -> Result<(), Error> {
        self.maps.lose_node(&node.octets())
    }

    /// Publishes a heartbeat, from which the programs reply to overlay probes.
    ///
    /// The method sets [`Heartbeat::ktime_ns`]. The programs reply until the heartbeat is older
    /// than [`ebpf_common::probe::HEARTBEAT_AGE_MAX_NS`], or until this process dies.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Clock`] if the clock cannot be read, and [`Error::Map`] if the kernel
    /// refuses the update.
    pub fn beat(&mut self, heartbeat: &Heartbeat) -> Result<(), Error> {
        self.maps.beat(&Heartbeat {
            ktime_ns: ktime_ns()?,
            ..*heartbeat
        })
    }

    /// Returns the last probe request of each node, and the age of the request.
    ///
    /// The result omits nodes that have sent no request. The method makes system calls for each
    /// node, so callers must not call it more than once a second.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Clock`] or [`Error::Map`] if the clock or the map cannot be read.
    pub fn last_requests(&self) -> Result<BTreeMap<Ipv4Addr, (Duration, LastRequest)>, Error> {
        let last_requests = self.maps.last_requests()?;
        let now = ktime_ns()?;
        let seen =
            (last_requests.into_iter()).filter(|(_, last_request)| last_request.ktime_ns > 0);

        Ok(seen
            .map(|(node, last_request)| {
                let age = Duration::from_nanos(now.saturating_sub(last_request.ktime_ns));
                (Ipv4Addr::from(node), (age, last_request))
            })
            .collect())
    }

    /// Returns the packet counters by [`name`](ebpf_common::counter::Counter::name).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel does not return the counters.
    pub fn counters(&self) -> Result<BTreeMap<&'static str, u64>, Error> {
        self.maps.counters()
    }

    /// Returns the log of dropped packets.
    ///
    /// Returns `None` without [`Options::log`], and at the second call.
    pub fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    /// Returns the programs that select a socket for each datagram if several sockets share a port.
    ///
    /// Returns `None` for an engine with one lane and one worker, and at the second call.
    pub fn take_socket_steering(&mut self) -> Option<SocketSteering> {
        self.socket_steering.take()
    }

    /// Returns the program that selects the queue of the TAP for each packet to a peer.
    ///
    /// Returns `None` for an engine with one lane and one worker, and at the second call.
    pub fn take_steering(&mut self) -> Option<Steering> {
        self.steering.take()
    }

    /// Detaches the programs, and removes all pins.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Several`] if a hook or pin cannot be removed. The method continues after
    /// such an error.
    pub fn detach(self) -> Result<(), Error> {
        let mut errors = Vec::new();
        for hook in self.hooks {
            errors.extend(hook.detach().err());
        }
        if let Some(dir) = &self.options.pin_dir {
            errors.extend(pin::remove_all(dir).err());
        }

        if errors.is_empty() {
            Ok(())
        } else {
            Err(Error::Several(errors))
        }
    }

    /// Removes all pins that an earlier process left in `pin_dir`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Several`] if a pin cannot be removed. The function continues after such an
    /// error.
    pub fn cleanup(pin_dir: &Path) -> Result<(), Error> {
        pin::remove_all(pin_dir)
    }

    /// Attaches the programs, unless they are already attached.
    fn attach_waiting(&mut self) -> Result<(), Error> {
        let Some(ebpf) = &mut self.waiting else {
            return Ok(());
        };

        let mechanism = Mechanism::of_kernel();
        let mut hooks = Vec::new();
        for point in ATTACH_POINTS {
            let program = object::program(ebpf, point.program)?;
            let device = (point.device)(&self.options);
            let pin = self.pins.as_ref().map(|pins| pins.link(point.pin));
            hooks.push(Hook::attach(program, device, pin, mechanism)?);
        }
        if let Some(pins) = &self.pins {
            pins.remove_other_layouts()?;
        }

        self.hooks = hooks;
        self.waiting = None;
        Ok(())
    }
}

/// A program, the name of its pin, and the device to whose ingress it is attached.
struct AttachPoint {
    program: &'static str,
    pin: &'static str,
    device: fn(&Options) -> &str,
}

/// The programs in the order of attachment. The program of the TAP comes first, so that the return
/// path works before the first request arrives.
const ATTACH_POINTS: [AttachPoint; 2] = [
    AttachPoint {
        program: TAP_PROGRAM,
        pin: "tap",
        device: |options| &options.tap,
    },
    AttachPoint {
        program: OVERLAY_PROGRAM,
        pin: "overlay",
        device: |options| &options.overlay,
    },
];

fn constants(options: &Options) -> Result<Constants, Error> {
    Ok(Constants {
        overlay_ifindex: ifindex(&options.overlay)?,
        tap_ifindex: ifindex(&options.tap)?,
        lanes: options.lanes,
        settings: options.settings,
        log: options.log,
        skip_kernel_types: options.skip_kernel_types,
        test_outer: None,
        #[cfg(feature = "mutants")]
        mutant: mutant(options)?,
    })
}

/// Opens the socket by which the programs check that this process is alive.
///
/// The socket belongs to the network namespace of the calling thread. `SO_REUSEADDR` lets a new
/// process open its socket while the process that it replaces still runs.
fn open_liveness_socket(port: u16) -> Result<OwnedFd, Error> {
    let open = || {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket_fd = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        setsockopt(&socket_fd, sockopt::ReuseAddr, &true)?;
        let any = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        bind(socket_fd.as_raw_fd(), &any)?;
        Ok(socket_fd)
    };

    open().map_err(|errno: Errno| Error::LivenessSocket {
        port,
        source: errno.into(),
    })
}

/// Returns the time in nanoseconds by `CLOCK_MONOTONIC`, the clock of the programs.
fn ktime_ns() -> Result<u64, Error> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(|errno| Error::Clock {
        source: errno.into(),
    })?;
    let now = Duration::from(now).as_nanos();

    Ok(u64::try_from(now).expect("a host does not run for 584 years"))
}

fn ifindex(device: &str) -> Result<u32, Error> {
    if_nametoindex(device).map_err(|errno: Errno| Error::NoDevice {
        device: device.to_owned(),
        source: errno.into(),
    })
}

#[cfg(feature = "mutants")]
fn mutant(options: &Options) -> Result<u32, Error> {
    use ebpf_common::mutant::Mechanism;

    let Some(name) = &options.mutant else {
        return Ok(0);
    };
    let mechanism =
        Mechanism::named(name).ok_or_else(|| Error::UnknownMutant { name: name.clone() })?;
    Ok(mechanism as u32)
}
