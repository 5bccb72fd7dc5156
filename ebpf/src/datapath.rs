//! The programs in the kernel: loaded, attached, and supplied with tables.

use crate::error::Error;
use crate::hook::{Hook, Mechanism};
use crate::image::Image;
use crate::maps::{Changes, Maps};
use crate::object::{self, Constants, OVERLAY_PROGRAM, TAP_PROGRAM};
use crate::pin::{self, Pins};
use crate::socket_steering::SocketSteering;
use crate::steering::Steering;
use crate::tables::Tables;
use crate::trace::Trace;
use aya::Ebpf;
use ebpf_common::probe::{Heartbeat, Sighting};
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

/// Devices, pins and numbers of one gateway.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the overlay device, in the network namespace of the calling thread.
    pub overlay: String,
    /// Name of the TAP, in the same namespace.
    pub tap: String,
    /// Directory on a BPF file system where maps and links outlive the process; without
    /// one they are removed when it ends.
    pub pin_dir: Option<PathBuf>,
    /// Ports, addresses and identifiers.
    pub settings: Settings,
    /// Whether the programs log each dropped packet; see [`Datapath::take_trace`].
    pub log: bool,
    /// Number of lanes of the engine, from 1 on.
    pub lanes: u32,
    /// Number of workers of each lane, from 1 on.
    pub workers: u32,
    /// Saves 15 MB during the start by not reading the kernel's BTF; for some microseconds the
    /// process cannot open files.
    pub skip_kernel_types: bool,
    /// Name of the mechanism that a mutation test switches off.
    #[cfg(feature = "mutants")]
    pub mutant: Option<String>,
}

impl Options {
    /// Creates the options for two devices; all others have their defaults.
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

/// The programs of one gateway.
pub struct Datapath {
    options: Options,
    maps: Maps,
    trace: Option<Trace>,
    steering: Option<Steering>,
    socket_steering: Option<SocketSteering>,
    pins: Option<Pins>,
    /// Loaded but not yet attached: programs of an earlier process, with maps of
    /// another layout, stay attached until the new maps are filled.
    waiting: Option<Ebpf>,
    /// Empty while waiting.
    hooks: Vec<Hook>,
    /// The programs reply to probes only while this socket exists; nothing is read from it.
    _liveness_socket: OwnedFd,
}

impl Datapath {
    /// Loads the programs and attaches them, or replaces those of an earlier process.
    ///
    /// With [`Options::pin_dir`], pinned maps and links are adopted, so traffic does not
    /// stop. If the earlier programs had maps of another layout, they stay attached until
    /// the first [`Datapath::apply`] has filled the new maps.
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
        // The heartbeat of an earlier process says nothing about this one.
        maps.beat(&Heartbeat::new(false, 0, []))?;
        let is_shared = options.lanes > 1 || options.workers > 1;
        let steering = is_shared.then(|| Steering::take(&mut ebpf)).transpose()?;
        let socket_steering = is_shared
            .then(|| SocketSteering::take(&mut ebpf))
            .transpose()?;
        let liveness_socket = open_liveness_socket(options.settings.probe_port)?;
        let trace = (options.log).then(|| Trace::take(&mut ebpf)).transpose()?;

        let is_replacing = pins
            .as_ref()
            .is_some_and(|pins| PLACES.iter().any(|place| pins.link(place.pin).exists()));
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

    /// Updates the maps to `tables`, in place: unchanged entries are not written.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the tables contradict themselves or exceed a limit, before
    /// anything is changed, or if the kernel refuses.
    pub fn apply(&mut self, tables: &Tables) -> Result<Changes, Error> {
        let image = Image::new(tables, &self.options.settings)?;
        let changes = self.maps.apply(image)?;
        self.attach_waiting()?;

        Ok(changes)
    }

    /// Publishes that the engine is alive, and which remote clusters are up.
    ///
    /// Sets [`Heartbeat::ktime_ns`]; probes get a reply for another
    /// [`ebpf_common::probe::HEARTBEAT_AGE_MAX_NS`], while this process lives.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the kernel refuses.
    pub fn beat(&mut self, heartbeat: &Heartbeat) -> Result<(), Error> {
        self.maps.beat(&Heartbeat {
            ktime_ns: ktime_ns()?,
            ..*heartbeat
        })
    }

    /// Returns the report in each node's last probe, and its age; nodes that sent no probe are
    /// left out.
    ///
    /// Takes a system call per node, so call it once a second at most.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the kernel refuses.
    pub fn sightings(&self) -> Result<BTreeMap<Ipv4Addr, (Duration, Sighting)>, Error> {
        let sightings = self.maps.sightings()?;
        let now = ktime_ns()?;
        let seen = (sightings.into_iter()).filter(|(_, sighting)| sighting.ktime_ns > 0);

        Ok(seen
            .map(|(node, sighting)| {
                let age = Duration::from_nanos(now.saturating_sub(sighting.ktime_ns));
                (Ipv4Addr::from(node), (age, sighting))
            })
            .collect())
    }

    /// Returns the counters by name; see [`ebpf_common::counter::Counter`].
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the kernel refuses.
    pub fn counters(&self) -> Result<BTreeMap<&'static str, u64>, Error> {
        self.maps.counters()
    }

    /// Returns the stream of dropped packets, once, and only with [`Options::log`].
    pub fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    /// Returns the steering of datagrams to sockets, once, and only if there are several lanes or
    /// workers.
    pub fn take_socket_steering(&mut self) -> Option<SocketSteering> {
        self.socket_steering.take()
    }

    /// Returns the steering of packets to the queues of the TAP, once, and only if there are
    /// several lanes or workers.
    pub fn take_steering(&mut self) -> Option<Steering> {
        self.steering.take()
    }

    /// Detaches the programs and removes all pins.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Several`] if something could not be removed; everything else is removed.
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

    /// Removes the pins of an earlier process, if there are any.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Several`] if something could not be removed.
    pub fn cleanup(pin_dir: &Path) -> Result<(), Error> {
        pin::remove_all(pin_dir)
    }

    /// Attaches the new programs, unless they are attached already.
    fn attach_waiting(&mut self) -> Result<(), Error> {
        let Some(ebpf) = &mut self.waiting else {
            return Ok(());
        };

        let mechanism = Mechanism::of_kernel();
        let mut hooks = Vec::new();
        for place in PLACES {
            let program = object::program(ebpf, place.program)?;
            let device = (place.device)(&self.options);
            let pin = self.pins.as_ref().map(|pins| pins.link(place.pin));
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

/// A program and its device.
struct Place {
    program: &'static str,
    pin: &'static str,
    device: fn(&Options) -> &str,
}

/// The TAP comes first, so that the return path works before the first request.
const PLACES: [Place; 2] = [
    Place {
        program: TAP_PROGRAM,
        pin: "tap",
        device: |options| &options.tap,
    },
    Place {
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

/// Opens the socket that proves this process alive to the programs, in the namespace of the calling
/// thread.
///
/// Its address is shared, because a process may take over from one that still runs.
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

/// Returns the time by the clock of the programs, in nanoseconds.
fn ktime_ns() -> Result<u64, Error> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(|errno| Error::Clock {
        source: errno.into(),
    })?;
    let now = Duration::from(now).as_nanos();

    Ok(u64::try_from(now).expect("584 years have not passed since boot"))
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
