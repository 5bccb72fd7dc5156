//! The TAP device, through which kernel and engine exchange Ethernet frames.

#![expect(unsafe_code, reason = "a TAP is configured by ioctl")]

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

const DEVICE: &str = "/dev/net/tun";

/// Offloads for incomplete checksums, and for TCP super-packets over IPv4 and IPv6 with ECN.
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// Offloads for UDP super-packets over IPv4 and IPv6, since Linux 6.2.
const USO: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// One queue of a multi-queue TAP. Each frame starts with a virtio_net_hdr.
pub(crate) struct Tap {
    queue: OwnedFd,
    /// Whether the kernel supports the offloads [`USO`].
    uso: bool,
}

/// The reason why the TAP cannot be created or opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel lacks TUN/TAP, or this mount namespace lacks the device node.
    #[error(
        "{DEVICE} cannot be opened: load the kernel module `tun` (CONFIG_TUN), and give a container the device"
    )]
    NoTun(#[source] Errno),

    /// The process lacks a capability.
    #[error("creating the TAP {0} needs CAP_NET_ADMIN")]
    Privilege(String),

    /// The device with this name is not a multi-queue TAP.
    #[error("the device {0} is no multi-queue TAP: remove it, or run `gateway cleanup`")]
    Kind(String),

    /// The kernel rejected a request for another reason.
    #[error("failed to set up the TAP {name}: {step}")]
    Io {
        name: String,
        /// Name of the ioctl that failed, or `name` if the name of the device is too long.
        step: &'static str,
        source: Errno,
    },
}

impl Tap {
    /// Opens a new queue of the TAP `name` in the calling thread's network namespace.
    ///
    /// The kernel creates the device if it does not exist. It deletes the device after the last
    /// queue is closed, unless [`Tap::persist`] was called.
    ///
    /// # Errors
    ///
    /// Returns [`Error`], which names cause and remedy.
    pub(crate) fn open(name: &str) -> Result<Self, Error> {
        let io = |step| {
            let name = name.to_owned();
            move |source| Error::Io { name, step, source }
        };
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let queue = open(DEVICE, flags, Mode::empty()).map_err(Error::NoTun)?;
        let request = request(name)
            .ok_or(Errno::ENAMETOOLONG)
            .map_err(io("name"))?;
        // SAFETY: TUNSETIFF reads an `ifreq`. The `ifreq` in `request` lives during the call.
        unsafe { ioctl::attach(queue.as_raw_fd(), &raw const request) }.map_err(|source| {
            if source == Errno::EPERM {
                Error::Privilege(name.to_owned())
            } else if matches!(source, Errno::EINVAL | Errno::EBUSY) {
                Error::Kind(name.to_owned())
            } else {
                io("TUNSETIFF")(source)
            }
        })?;

        let set = |flags: libc::c_uint| {
            let flags = libc::c_int::try_from(flags).expect("the flags fill seven bits");
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            unsafe { ioctl::offload(queue.as_raw_fd(), flags) }
        };
        let uso = set(OFFLOADS | USO).is_ok();
        if !uso {
            set(OFFLOADS).map_err(io("TUNSETOFFLOAD"))?;
        }

        Ok(Self { queue, uso })
    }

    /// Makes the device persistent, so that it outlives this process.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the kernel rejects the request.
    pub(crate) fn persist(&self, name: &str) -> Result<(), Error> {
        // SAFETY: TUNSETPERSIST takes its argument by value.
        unsafe { ioctl::persist(self.queue.as_raw_fd(), 1) }
            .map(drop)
            .map_err(|source| Error::Io {
                name: name.to_owned(),
                step: "TUNSETPERSIST",
                source,
            })
    }

    /// Attaches the eBPF program that chooses a queue for each frame from the kernel.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the kernel rejects the request.
    pub(crate) fn steer(&self, name: &str, program: BorrowedFd<'_>) -> Result<(), Error> {
        let program: libc::c_int = program.as_raw_fd();
        // SAFETY: TUNSETSTEERINGEBPF reads an `int`. The `int` in `program` lives during the call.
        unsafe { ioctl::steer(self.queue.as_raw_fd(), &raw const program) }
            .map(drop)
            .map_err(|source| Error::Io {
                name: name.to_owned(),
                step: "TUNSETSTEERINGEBPF",
                source,
            })
    }

    /// Returns whether the device supports UDP super-packets.
    pub(crate) fn uso(&self) -> bool {
        self.uso
    }

    /// Reads one frame into `frame` and returns its length; `None` if the queue is empty.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error, such as `EBADFD` if the device was deleted.
    pub(crate) fn read(&self, frame: &mut [u8]) -> Result<Option<usize>, Errno> {
        match nix::unistd::read(&self.queue, frame) {
            Ok(len) => Ok(Some(len)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes one frame.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error, such as `EIO` while the device is down.
    pub(crate) fn write(&self, frame: &[u8]) -> Result<(), Errno> {
        nix::unistd::write(&self.queue, frame).map(drop)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

mod ioctl {
    nix::ioctl_write_ptr_bad!(attach, libc::TUNSETIFF, libc::ifreq);
    nix::ioctl_write_ptr_bad!(steer, libc::TUNSETSTEERINGEBPF, libc::c_int);
    nix::ioctl_write_int_bad!(persist, libc::TUNSETPERSIST);
    nix::ioctl_write_int_bad!(offload, libc::TUNSETOFFLOAD);
}

/// Returns the argument of TUNSETIFF for the device `name`; `None` if the name is too long.
fn request(name: &str) -> Option<libc::ifreq> {
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;
    // SAFETY: an `ifreq` of zero bytes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).expect("the flags have 16 bits");
    Some(request)
}
