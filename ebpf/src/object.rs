//! The embedded object, loaded with its constants.

use crate::error::Error;
use crate::pin::Pins;
use aya::maps::MapType;
use aya::programs::{ProgramError, ProgramType, SchedClassifier, SocketFilter};
use aya::sys::{is_map_supported, is_program_supported};
use aya::{Ebpf, EbpfError, EbpfLoader};
use ebpf_common::settings::Settings;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};

/// The kernel programs, built by `build.rs`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("LIQO_EBPF_OBJECT"));

/// Attached to the ingress of the overlay device.
pub(crate) const OVERLAY_PROGRAM: &str = "overlay_ingress";

/// Attached to the ingress of the TAP.
pub(crate) const TAP_PROGRAM: &str = "tap_ingress";

/// Attached to the sockets of the listening port.
pub(crate) const LISTEN_PROGRAM: &str = "listen";

/// Attached to the sockets of all other ports.
pub(crate) const REPLY_PROGRAM: &str = "reply";

/// Attached to a TAP with several queues.
pub(crate) const STEER_PROGRAM: &str = "steer";

/// Log level without messages; the verifier then removes all logging.
const LOG_OFF: u8 = 0;

/// Log level of dropped packets.
const LOG_DEBUG: u8 = aya_log::Level::Debug as u8;

/// Constants of the programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    pub(crate) overlay_ifindex: u32,
    pub(crate) tap_ifindex: u32,
    pub(crate) lanes: u32,
    pub(crate) settings: Settings,
    pub(crate) log: bool,
    /// See [`crate::Options::skip_kernel_types`].
    pub(crate) skip_kernel_types: bool,
    /// Replaces the outer source in test runs.
    pub(crate) test_outer: Option<Ipv4Addr>,
    /// Number of the mechanism that is switched off.
    #[cfg(feature = "mutants")]
    pub(crate) mutant: u32,
}

/// Creates the maps, or adopts the pinned ones, and loads the programs.
///
/// # Errors
///
/// Returns an [`Error`] that names the missing privilege or kernel feature, if that is the cause.
pub(crate) fn load(constants: &Constants, pins: Option<&Pins>) -> Result<Ebpf, Error> {
    let settings = &constants.settings;
    let mask = u32::MAX.checked_shl(32 - u32::from(settings.probe_net_len.min(32)));
    let mask = mask.unwrap_or_default();
    let net = settings.probe_net.to_bits() & mask;
    let level = if constants.log { LOG_DEBUG } else { LOG_OFF };
    let test_outer = constants.test_outer.map_or(0, Ipv4Addr::to_bits);
    // In network order, read as a native word.
    let (net, mask, port) = (net.to_be(), mask.to_be(), settings.probe_port.to_be());
    let (node_mac, gateway_mac) = (word(settings.node_mac), word(settings.gateway_mac));

    let mut loader = loader(constants.skip_kernel_types);
    loader
        .override_global("OVERLAY_IFINDEX", &constants.overlay_ifindex, true)
        .override_global("TAP_IFINDEX", &constants.tap_ifindex, true)
        .override_global("LANE_COUNT", &constants.lanes, true)
        .override_global("OVERLAY_VNI", &settings.overlay_vni, true)
        .override_global("PEER_MAC_PREFIX", &settings.peer_mac_prefix, true)
        .override_global("NODE_MAC", &node_mac, true)
        .override_global("GATEWAY_MAC", &gateway_mac, true)
        .override_global("PROBE_NET", &net, true)
        .override_global("PROBE_MASK", &mask, true)
        .override_global("PROBE_PORT", &port, true)
        .override_global("TEST_OUTER", &test_outer, true)
        .override_global(aya_log::LEVEL, &level, true);
    #[cfg(feature = "mutants")]
    loader.override_global("MUTANT", &constants.mutant, true);
    if !constants.log {
        // With logging off, the smallest buffer is enough.
        loader.map_max_entries("AYA_LOGS", 1);
    }
    if let Some(pins) = pins {
        for (name, path) in pins.maps() {
            loader.map_pin_path(name, path);
        }
    }

    let mut ebpf = loader.load(OBJECT).map_err(explain)?;
    for name in [OVERLAY_PROGRAM, TAP_PROGRAM] {
        program(&mut ebpf, name)?
            .load()
            .map_err(|error| refuse(name, error))?;
    }

    Ok(ebpf)
}

/// Creates a loader; with `skip_kernel_types` one that has not read the kernel's BTF.
///
/// aya always reads it, for relocations. Our programs have none, and the 15 MB that aya makes of
/// its 5 MB would be the peak of a gateway's memory. A limit of no open files keeps aya from the
/// file for some microseconds; it needs neither a capability nor a mount.
fn loader(skip_kernel_types: bool) -> EbpfLoader<'static> {
    if !skip_kernel_types {
        return EbpfLoader::new();
    }
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return EbpfLoader::new();
    };
    let limit = |soft| setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    if let Err(error) = limit(0) {
        tracing::debug!(%error, "failed to skip the kernel's types: loading takes 15 MB more memory");
    }
    let loader = EbpfLoader::new();
    if let Err(error) = limit(soft) {
        tracing::error!(%error, "failed to restore the limit of open files");
    }

    loader
}

/// Loads a program for sockets and returns it.
///
/// # Errors
///
/// Returns [`Error`] if the kernel refuses.
pub(crate) fn socket_filter(ebpf: &mut Ebpf, name: &'static str) -> Result<OwnedFd, Error> {
    let refused = |source| Error::Program {
        program: name,
        source: Box::new(source),
    };
    let program = ebpf.program_mut(name).ok_or(Error::Missing { name })?;
    let program: &mut SocketFilter = program.try_into().map_err(|_| Error::Missing { name })?;
    program.load().map_err(refused)?;
    let program = program.fd().map_err(refused)?;
    let program = program.as_fd().try_clone_to_owned();

    program.map_err(|error| refused(error.into()))
}

/// Returns one of the programs.
///
/// # Errors
///
/// Returns [`Error::Missing`] if object and loader are of different revisions.
pub(crate) fn program<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, Error> {
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or(Error::Missing { name })
}

fn word([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])
}

/// Returns the cause of a refused map, with a remedy where there is one.
fn explain(error: EbpfError) -> Error {
    if is_not_permitted(&error) {
        return Error::NotPermitted {
            action: "create the maps of the kernel programs",
        };
    }
    missing_feature().unwrap_or(Error::Object {
        source: Box::new(error),
    })
}

/// Returns the cause of a refused program, with a remedy where there is one.
fn refuse(program: &'static str, error: ProgramError) -> Error {
    // Without PERFMON, the verifier applies stricter rules and names `!root` in its log.
    if is_not_permitted(&error) || error.to_string().contains("for !root") {
        return Error::NotPermitted {
            action: "load the kernel programs",
        };
    }
    missing_feature().unwrap_or(Error::Program {
        program,
        source: Box::new(error),
    })
}

/// Returns the first feature that the programs need and the kernel lacks.
fn missing_feature() -> Option<Error> {
    let maps = [
        (
            MapType::LpmTrie,
            "longest-prefix maps (BPF_MAP_TYPE_LPM_TRIE)",
            "4.11",
        ),
        (
            MapType::PerCpuArray,
            "maps per CPU (BPF_MAP_TYPE_PERCPU_ARRAY)",
            "4.6",
        ),
        (
            MapType::RingBuf,
            "ring buffers (BPF_MAP_TYPE_RINGBUF)",
            "5.8",
        ),
    ];
    for (kind, feature, since) in maps {
        if matches!(is_map_supported(kind), Ok(false)) {
            return Some(Error::Unsupported { feature, since });
        }
    }
    if matches!(
        is_program_supported(ProgramType::SchedClassifier),
        Ok(false)
    ) {
        return Some(Error::Unsupported {
            feature: "programs at traffic control (CONFIG_NET_CLS_BPF, CONFIG_NET_CLS_ACT)",
            since: "4.1",
        });
    }

    None
}

/// Returns whether a cause of `error` is the kernel's `EPERM`.
pub(crate) fn is_not_permitted(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // Not `EACCES`, which the verifier returns for an invalid program.
        let code = (error.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error);
        if code == Some(Errno::EPERM as i32) {
            return true;
        }
        next = error.source();
    }

    false
}
