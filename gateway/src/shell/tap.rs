//! The TAP between kernel and engine.

#![expect(unsafe_code, reason = "a TAP is configured by ioctl")]

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

const DEVICE: &str = "/dev/net/tun";

/// Incomplete checksums; TCP super-packets of both families, with ECN.
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// UDP super-packets of both families, since Linux 6.2.
const USO: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// One queue of a TAP whose frames carry a virtio_net_hdr.
pub(crate) struct Tap {
    queue: OwnedFd,
    uso: bool,
}

/// The TAP cannot be created or opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel has no TUN/TAP, or this mount namespace no device node.
    #[error(
        "{DEVICE} cannot be opened: load the kernel module `tun` (CONFIG_TUN), and give a container the device"
    )]
    NoTun(#[source] Errno),

    /// A capability is missing.
    #[error("creating the TAP {0} needs CAP_NET_ADMIN")]
    Privilege(String),

    /// The device of that name is no TAP, or has a single queue.
    #[error("the device {0} is no multi-queue TAP: remove it, or run `gateway cleanup`")]
    Kind(String),

    /// Any other cause.
    #[error("failed to set up the TAP {name}: {step}")]
    Io {
        name: String,
        /// The ioctl that failed.
        step: &'static str,
        source: Errno,
    },
}

impl Tap {
    /// Creates the TAP `name` in the calling thread's network namespace, or opens another queue of an
    /// existing one.
    ///
    /// The device ends with its last queue, unless [`Tap::persist`] is called.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] with cause and remedy.
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
        // SAFETY: the request lives during the call, and TUNSETIFF takes an `ifreq`.
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
            // SAFETY: TUNSETOFFLOAD takes its flags by value.
            unsafe { ioctl::offload(queue.as_raw_fd(), flags) }
        };
        let uso = set(OFFLOADS | USO).is_ok();
        if !uso {
            set(OFFLOADS).map_err(io("TUNSETOFFLOAD"))?;
        }

        Ok(Self { queue, uso })
    }

    /// Makes the device outlive this process.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the kernel refuses.
    pub(crate) fn persist(&self, name: &str) -> Result<(), Error> {
        // SAFETY: TUNSETPERSIST takes its flag by value.
        unsafe { ioctl::persist(self.queue.as_raw_fd(), 1) }
            .map(drop)
            .map_err(|source| Error::Io {
                name: name.to_owned(),
                step: "TUNSETPERSIST",
                source,
            })
    }

    /// Attaches the program that chooses the queue of each frame.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the kernel refuses.
    pub(crate) fn steer(&self, name: &str, program: BorrowedFd<'_>) -> Result<(), Error> {
        let program: libc::c_int = program.as_raw_fd();
        // SAFETY: the value lives during the call, and TUNSETSTEERINGEBPF takes an `int`.
        unsafe { ioctl::steer(self.queue.as_raw_fd(), &raw const program) }
            .map(drop)
            .map_err(|source| Error::Io {
                name: name.to_owned(),
                step: "TUNSETSTEERINGEBPF",
                source,
            })
    }

    /// Returns whether the device reads and writes UDP super-packets.
    pub(crate) fn uso(&self) -> bool {
        self.uso
    }

    /// Reads one frame into `frame`; `None` if none waits.
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

/// Returns the argument of TUNSETIFF; `None` if the name is too long for a device.
fn request(name: &str) -> Option<libc::ifreq> {
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).expect("flags of 16 bits");
    Some(request)
}
