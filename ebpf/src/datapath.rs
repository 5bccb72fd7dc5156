//! The programs in the kernel: loaded, attached, and told what they shall know.

use crate::error::Error;
use crate::hook::{Hook, Mechanism};
use crate::image::Image;
use crate::maps::{Changes, Maps};
use crate::object::{self, Constants, OVERLAY_PROGRAM, TAP_PROGRAM};
use crate::pin::{self, Pins};
use crate::steering::Steering;
use crate::tables::Tables;
use crate::trace::Trace;
use crate::turns::Turns;
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

/// What runs where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the overlay device, in the network namespace of the calling thread.
    pub overlay: String,
    /// Name of the TAP, in the same namespace.
    pub tap: String,
    /// Directory on a BPF file system where maps and links outlive the process; without
    /// one they die with it.
    pub pin_dir: Option<PathBuf>,
    /// Numbers that others might collide with.
    pub settings: Settings,
    /// Whether the programs tell of each dropped packet; see [`Datapath::take_trace`].
    pub log: bool,
    /// How many lanes the engine has, from 1 on.
    pub lanes: u32,
    /// How many workers each lane has, from 1 on.
    pub workers: u32,
    /// Saves 15 MB during the start by not reading the kernel's BTF; for some microseconds the
    /// process cannot open files.
    pub skip_kernel_types: bool,
    /// Name of the one mechanism that a test switches off.
    #[cfg(feature = "mutants")]
    pub mutant: Option<String>,
}

impl Options {
    /// Creates the options for two devices, with the defaults of everything else.
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
    turns: Option<Turns>,
    pins: Option<Pins>,
    /// Loaded but not yet attached: older programs run on, with maps of another
    /// layout, until the new maps are filled.
    waiting: Option<Ebpf>,
    /// Empty while waiting.
    hooks: Vec<Hook>,
    /// By it the programs know that this process lives; nothing is ever read from it.
    _life: OwnedFd,
}

impl Datapath {
    /// Loads the programs and attaches them, or replaces those of an earlier process.
    ///
    /// With [`Options::pin_dir`], maps and links that are there are adopted: the
    /// traffic does not stop. If the earlier programs had maps of another layout,
    /// they run on until the first [`Datapath::apply`] has filled the new maps.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] that names the missing privilege, kernel feature, device or mount.
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
        // What an earlier process has said last is not true of this one.
        maps.beat(&Heartbeat::new(false, 0, []))?;
        let is_shared = options.lanes > 1 || options.workers > 1;
        let steering = is_shared.then(|| Steering::take(&mut ebpf)).transpose()?;
        let turns = is_shared.then(|| Turns::take(&mut ebpf)).transpose()?;
        let life = sign_of_life(options.settings.probe_port)?;
        let trace = (options.log).then(|| Trace::take(&mut ebpf)).transpose()?;

        let is_replacing = pins
            .as_ref()
            .is_some_and(|pins| PLACES.iter().any(|place| pins.link(place.pin).exists()));
        let mut datapath = Self {
            options,
            maps,
            trace,
            steering,
            turns,
            pins,
            waiting: Some(ebpf),
            hooks: Vec::new(),
            _life: life,
        };
        if is_adopting || !is_replacing {
            datapath.run()?;
        }

        Ok(datapath)
    }

    /// Makes the maps hold what `tables` say, in place: unchanged entries are not touched.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the tables contradict themselves or exceed a limit, before
    /// anything is changed, or if the kernel refuses.
    pub fn apply(&mut self, tables: &Tables) -> Result<Changes, Error> {
        let image = Image::new(tables, &self.options.settings)?;
        let changes = self.maps.apply(image)?;
        self.run()?;

        Ok(changes)
    }

    /// Tells the programs that the engine is alive, and which remote clusters are up.
    ///
    /// Sets [`Heartbeat::ktime_ns`]; probes are answered for
    /// [`ebpf_common::probe::HEARTBEAT_AGE_MAX_NS`] after it, while this process lives.
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

    /// Returns what each node's last probe said, and how long ago that was; nothing of a node
    /// that has not asked.
    ///
    /// Reads an entry per node: meant for once a second.
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

    /// Returns what the programs have counted, by name; see [`ebpf_common::counter::Counter`].
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

    /// Returns what spreads datagrams over sockets, once, and only if there are several lanes or
    /// workers.
    pub fn take_turns(&mut self) -> Option<Turns> {
        self.turns.take()
    }

    /// Returns what spreads packets over the queues of the TAP, once, and only if there are
    /// several lanes or workers.
    pub fn take_steering(&mut self) -> Option<Steering> {
        self.steering.take()
    }

    /// Stops the programs and removes what is pinned.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Several`] if something stays; everything else is gone then.
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

    /// Removes what an earlier process has pinned; fine if there is nothing.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Several`] if something stays.
    pub fn cleanup(pin_dir: &Path) -> Result<(), Error> {
        pin::remove_all(pin_dir)
    }

    /// Lets the new programs take over, if they have not.
    fn run(&mut self) -> Result<(), Error> {
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

/// Which program runs at which device.
struct Place {
    program: &'static str,
    pin: &'static str,
    device: fn(&Options) -> &str,
}

/// The TAP first: answers find their way before questions do.
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

/// Opens the socket that the programs look for, in the calling thread's namespace.
///
/// Shared, since a process may take over from one that still runs.
fn sign_of_life(port: u16) -> Result<OwnedFd, Error> {
    let open = || {
        let flags = SockFlag::SOCK_CLOEXEC;
        let life = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        setsockopt(&life, sockopt::ReuseAddr, &true)?;
        let any = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        bind(life.as_raw_fd(), &any)?;
        Ok(life)
    };

    open().map_err(|errno: Errno| Error::Life {
        port,
        source: errno.into(),
    })
}

/// Returns the clock that the programs read, in nanoseconds.
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
