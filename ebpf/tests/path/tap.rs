//! A TAP with a virtio header before each frame.

#![expect(unsafe_code, reason = "a TAP is opened by ioctl")]

use nix::libc::{IFF_NO_PI, IFF_TAP, IFF_VNET_HDR, IFNAMSIZ, c_char, c_short, ifreq};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

nix::ioctl_write_int!(set_iff, b'T', 202);
nix::ioctl_write_int!(set_offload, b'T', 208);

/// Length of the virtio header before each frame.
pub(super) const VNET_HEADER: usize = 10;

/// Offloads of the TAP: the kernel leaves checksums and IPv4 TCP segmentation to the reader.
const OFFLOADS: u64 = 0x01 | 0x02;

/// The file descriptor of a TAP, from which an engine reads frames.
pub(super) struct Tap {
    file: File,
}

impl Tap {
    /// Creates a TAP in the namespace of this thread.
    pub(super) fn open(name: &str) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .unwrap();
        // SAFETY: An `ifreq` may have all bytes zero.
        let mut request: ifreq = unsafe { std::mem::zeroed() };
        assert!(name.len() < IFNAMSIZ);
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        request.ifr_ifru.ifru_flags = (IFF_TAP | IFF_NO_PI | IFF_VNET_HDR) as c_short;
        // SAFETY: The kernel reads and writes the request, which outlives the call.
        unsafe { set_iff(file.as_raw_fd(), &raw mut request as u64) }.unwrap();
        // SAFETY: The call takes no pointer.
        unsafe { set_offload(file.as_raw_fd(), OFFLOADS) }.unwrap();

        Self { file }
    }

    /// Returns the next frame with its virtio header, or `None` if no frame is queued.
    pub(super) fn read(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 70_000];
        let len = (&self.file).read(&mut frame).ok()?;
        frame.truncate(len);
        Some(frame)
    }

    /// Writes a frame with its virtio header. Returns whether the kernel accepted the frame.
    pub(super) fn write(&self, frame: &[u8]) -> bool {
        (&self.file).write(frame).is_ok()
    }
}
