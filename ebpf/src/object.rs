//! Loads the embedded object file of the eBPF programs, with the settings of this gateway.

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

/// The object file of the eBPF programs, which `build.rs` builds.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("LIQO_EBPF_OBJECT"));

/// Name of the program at the ingress of the overlay device.
pub(crate) const OVERLAY_PROGRAM: &str = "overlay_ingress";

/// Name of the program at the ingress of the TAP.
pub(crate) const TAP_PROGRAM: &str = "tap_ingress";

/// Name of the program that selects one of the sockets that share the listening port.
pub(crate) const LISTEN_PROGRAM: &str = "listen";

/// Name of the program that selects one of the sockets that share the port of a lane.
pub(crate) const REPLY_PROGRAM: &str = "reply";

/// Name of the program that selects the queue of a TAP.
pub(crate) const STEER_PROGRAM: &str = "steer";

/// Log level at which the verifier removes all logging from the programs.
const LOG_OFF: u8 = 0;

/// Log level at which the programs log dropped packets.
const LOG_DEBUG: u8 = aya_log::Level::Debug as u8;

/// Values that the loader writes into the programs as constants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    pub(crate) overlay_ifindex: u32,
    pub(crate) tap_ifindex: u32,
    pub(crate) lanes: u32,
    pub(crate) settings: Settings,
    pub(crate) log: bool,
    /// Whether to skip the kernel's BTF, as in [`crate::Options::skip_kernel_types`].
    pub(crate) skip_kernel_types: bool,
    /// Outer source address of all overlay packets in test runs; `None` outside of tests.
    pub(crate) test_outer: Option<Ipv4Addr>,
    /// Number of the mechanism that is switched off; zero for none.
    #[cfg(feature = "mutants")]
    pub(crate) mutant: u32,
}

/// Creates the maps or opens the pinned maps, and loads the programs.
///
/// # Errors
///
/// Returns [`Error::NotPermitted`] or [`Error::Unsupported`] if the process lacks a capability or
/// the kernel lacks a feature. Otherwise returns the kernel's error.
pub(crate) fn load(constants: &Constants, pins: Option<&Pins>) -> Result<Ebpf, Error> {
    let settings = &constants.settings;
    let mask = u32::MAX.checked_shl(32 - u32::from(settings.probe_net_len.min(32)));
    let mask = mask.unwrap_or_default();
    let net = settings.probe_net.to_bits() & mask;
    let level = if constants.log { LOG_DEBUG } else { LOG_OFF };
    let test_outer = constants.test_outer.map_or(0, Ipv4Addr::to_bits);
    // The programs compare these values with header fields, which are in network byte order.
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
        // Without logging, the log buffer stays empty, so the smallest size saves memory.
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

/// Creates a loader. With `skip_kernel_types`, it does not read the kernel's BTF.
///
/// aya always reads the BTF for relocations, which these programs do not have. The parsed BTF takes
/// 15 MB, which would determine the peak memory of a gateway. This function sets the limit of open
/// files to zero for some microseconds, so that aya cannot open the BTF file. Changing the limit
/// needs no capability.
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

/// Loads a socket filter program, and returns its file descriptor.
///
/// # Errors
///
/// Returns [`Error::Program`] if the kernel rejects the program.
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

/// Returns the traffic control program with this name.
///
/// # Errors
///
/// Returns [`Error::Missing`] if the object file lacks the program.
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

/// Returns the likely cause if the maps cannot be created.
fn explain(error: EbpfError) -> Error {
    if is_not_permitted(&error) {
        return Error::NotPermitted {
            action: "create the maps of the eBPF programs",
        };
    }
    missing_feature().unwrap_or(Error::Object {
        source: Box::new(error),
    })
}

/// Returns the likely cause if a program cannot be loaded.
fn refuse(program: &'static str, error: ProgramError) -> Error {
    // Without PERFMON, the verifier applies stricter rules, and its log contains `!root`.
    if is_not_permitted(&error) || error.to_string().contains("for !root") {
        return Error::NotPermitted {
            action: "load the eBPF programs",
        };
    }
    missing_feature().unwrap_or(Error::Program {
        program,
        source: Box::new(error),
    })
}

/// Returns an error for the first feature that the programs need and the kernel lacks, if any.
fn missing_feature() -> Option<Error> {
    let maps = [
        (
            MapType::LpmTrie,
            "longest-prefix maps (BPF_MAP_TYPE_LPM_TRIE)",
            "4.11",
        ),
        (
            MapType::PerCpuArray,
            "per-CPU maps (BPF_MAP_TYPE_PERCPU_ARRAY)",
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
            feature: "traffic control programs (CONFIG_NET_CLS_BPF, CONFIG_NET_CLS_ACT)",
            since: "4.1",
        });
    }

    None
}

/// Returns whether `error` or one of its sources is the kernel's `EPERM`.
pub(crate) fn is_not_permitted(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // The function ignores `EACCES`, which the verifier returns for an invalid program.
        let code = (error.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error);
        if code == Some(Errno::EPERM as i32) {
            return true;
        }
        next = error.source();
    }

    false
}
