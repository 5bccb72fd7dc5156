//! Reads and writes the headers of a packet through direct packet pointers.
//!
//! Multi-byte fields keep network byte order in a native integer, because comparisons, masks and
//! checksums need no conversion.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;
use ebpf_common::maps::Mac;

use crate::options;

/// Length of the Ethernet header.
pub(crate) const ETHERNET: usize = 14;

// Offsets from the start of the frame.
pub(crate) const TTL: usize = ETHERNET + 8;
pub(crate) const IP_CHECKSUM: usize = ETHERNET + 10;
pub(crate) const SOURCE: usize = ETHERNET + 12;

/// Length of an IPv4 header without options.
pub(crate) const IPV4: usize = 20;

/// Length of an Ethernet header and an IPv4 header without options.
pub(crate) const HEADERS: usize = ETHERNET + IPV4;

/// Length of the longest headers that the programs read through pointers: Ethernet, IPv4 and TCP,
/// without options.
const DIRECT: u32 = (HEADERS + 20) as u32;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const DCCP: u8 = 33;
pub(crate) const UDP_LITE: u8 = 136;

const ETHERTYPE_IPV4: u16 = 0x0800_u16.to_be();

/// Mask of the *more fragments* flag and the fragment offset. The masked bits are zero if the
/// packet is not a fragment.
const FRAGMENT: u16 = 0x3fff_u16.to_be();
const FRAGMENT_OFFSET: u16 = 0x1fff_u16.to_be();

/// Length of the ICMP header.
pub(crate) const ICMP_HEADER: u32 = 8;

/// Minimum offset of a later ICMP fragment, in units of 8 bytes.
///
/// A fragment with this offset begins after the ICMP header and the quoted IPv4 header. The gateway
/// checks the quoted addresses only in the first fragment. A later fragment with a lower offset
/// could overwrite these addresses at a receiver that accepts overlapping fragments (RFC 1858,
/// section 4).
const ICMP_FRAGMENT_OFFSET_MIN: u16 = 4;
const _: () = assert!(ICMP_FRAGMENT_OFFSET_MIN as u32 * 8 >= ICMP_HEADER + IPV4 as u32);

/// The Ethernet header. All fields are byte arrays, because the kernel does not align headers and a
/// reference to a misaligned integer would be undefined behaviour.
#[repr(C)]
struct Ethernet {
    destination: [u8; 6],
    source: [u8; 6],
    ethertype: [u8; 2],
}

/// The IPv4 header without options. All fields are byte arrays, as in [`Ethernet`].
#[repr(C)]
struct Ipv4 {
    version_ihl: u8,
    tos: u8,
    total_len: [u8; 2],
    id: [u8; 2],
    fragment: [u8; 2],
    ttl: u8,
    protocol: u8,
    checksum: [u8; 2],
    source: [u8; 4],
    destination: [u8; 4],
}

const _: () = assert!(size_of::<Ethernet>() == ETHERNET && align_of::<Ethernet>() == 1);
const _: () = assert!(size_of::<Ipv4>() == IPV4 && align_of::<Ipv4>() == 1);

/// The counters of one hook for the frames that [`Frame::read`] rejects.
pub(crate) struct Refusals {
    pub(crate) not_ipv4: Counter,
    pub(crate) malformed: Counter,
    pub(crate) source_routed: Counter,
}

/// A frame with an IPv4 header whose lengths and options have been checked.
///
/// If an ICMP packet is not fragmented or is the first fragment, its ICMP header is complete.
///
/// Invariant: the pointers are valid until a helper moves the packet's data.
pub(crate) struct Frame {
    ethernet: *mut Ethernet,
    ipv4: *mut Ipv4,
    end: usize,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) protocol: u8,
    /// Offset of the end of the IPv4 header from the start of the frame.
    pub(crate) payload: u32,
    /// Offset of the end of the IPv4 packet from the start of the frame.
    pub(crate) packet_end: u32,
    fragment: u16,
}

impl Frame {
    /// Moves the headers into the linear part of the packet, and checks them.
    ///
    /// Returns the counter of the reason if the frame must be dropped.
    #[inline(always)]
    pub(crate) fn read(ctx: &TcContext, refusals: &Refusals) -> Result<Self, Counter> {
        let malformed = refusals.malformed;
        if ctx.data() + DIRECT as usize > ctx.data_end()
            && (ctx.len() >= DIRECT || ctx.data() + HEADERS > ctx.data_end())
            && ctx.len() > 0
        {
            // The helper fails only if memory is short. The checks below then reject the frame.
            let _ = ctx.pull_data(ctx.len().min(DIRECT));
        }
        let (start, end) = (ctx.data(), ctx.data_end());
        if start + HEADERS > end {
            return Err(Self::classify_short(ctx, refusals));
        }
        let ethernet = start as *mut Ethernet;
        let ipv4 = (start + ETHERNET) as *mut Ipv4;

        // SAFETY: Both headers end before `end`, and their types have an alignment of 1.
        let (ethernet_ref, ipv4_ref) = unsafe { (&*ethernet, &*ipv4) };
        if u16::from_ne_bytes(ethernet_ref.ethertype) != ETHERTYPE_IPV4 {
            return Err(refusals.not_ipv4);
        }
        let ihl = u32::from(ipv4_ref.version_ihl & 0xf) * 4;
        let total_len = u32::from(u16::from_be_bytes(ipv4_ref.total_len));
        let packet_end = ETHERNET as u32 + total_len;
        if ipv4_ref.version_ihl >> 4 != 4
            || ihl < IPV4 as u32
            || total_len < ihl
            || packet_end > ctx.len()
        {
            return Err(malformed);
        }
        let frame = Self {
            ethernet,
            ipv4,
            end,
            source: u32::from_ne_bytes(ipv4_ref.source),
            destination: u32::from_ne_bytes(ipv4_ref.destination),
            protocol: ipv4_ref.protocol,
            payload: ETHERNET as u32 + ihl,
            packet_end,
            fragment: u16::from_ne_bytes(ipv4_ref.fragment),
        };
        if frame.protocol == ICMP && frame.is_malformed_icmp() {
            return Err(malformed);
        }
        if ihl > IPV4 as u32 {
            options::check(ctx, frame.payload, malformed, refusals.source_routed)?;
        }

        Ok(frame)
    }

    /// Returns the counter for a frame that is shorter than Ethernet and IPv4 headers.
    ///
    /// The frame is a truncated IPv4 packet, or belongs to a protocol other than IPv4.
    #[inline(always)]
    fn classify_short(ctx: &TcContext, refusals: &Refusals) -> Counter {
        match ctx.load::<u16>(ETHERNET - 2) {
            Ok(ETHERTYPE_IPV4) | Err(_) => refusals.malformed,
            Ok(_) => refusals.not_ipv4,
        }
    }

    /// Returns whether an ICMP packet ends within its ICMP header, or is a later fragment that
    /// could overwrite the quoted addresses.
    ///
    /// The total length in the IPv4 header determines the end of the packet. The frame may have
    /// padding after that end.
    #[inline(always)]
    fn is_malformed_icmp(&self) -> bool {
        if self.is_later_fragment() {
            u16::from_be(self.fragment & FRAGMENT_OFFSET) < ICMP_FRAGMENT_OFFSET_MIN
        } else {
            self.payload + ICMP_HEADER > self.packet_end
        }
    }

    /// Returns whether this is a fragment other than the first one, which has no transport header.
    #[inline(always)]
    pub(crate) fn is_later_fragment(&self) -> bool {
        self.fragment & FRAGMENT_OFFSET != 0
    }

    /// Returns whether the packet has a complete TCP or UDP header, is not a fragment, and has no
    /// IPv4 options.
    ///
    /// A TCP SYN segment is not plain, because the program may rewrite its MSS option.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        const TCP_FLAGS: usize = HEADERS + 13;
        const SYN: u8 = 0x02;

        if self.payload != HEADERS as u32 || self.fragment & FRAGMENT != 0 {
            return false;
        }
        if self.protocol == UDP {
            return self.packet_end >= HEADERS as u32 + 8;
        }

        let start = self.ethernet as usize;
        self.protocol == TCP
            && self.packet_end >= DIRECT
            && start + TCP_FLAGS < self.end
            // SAFETY: The line above checks that the byte is before `end`.
            && unsafe { *((start + TCP_FLAGS) as *const u8) } & SYN == 0
    }

    /// Returns the peer's index, in network byte order, from the source MAC address.
    ///
    /// Returns `None` if the MAC address does not begin with `prefix`.
    #[inline(always)]
    pub(crate) fn peer(&self, prefix: [u8; 4]) -> Option<[u8; 2]> {
        // SAFETY: `read` has checked the bounds.
        let [a, b, c, d, high, low] = unsafe { (*self.ethernet).source };
        (u32::from_ne_bytes([a, b, c, d]) == u32::from_ne_bytes(prefix)).then_some([high, low])
    }

    #[inline(always)]
    pub(crate) fn ttl(&self) -> u8 {
        // SAFETY: `read` has checked the bounds.
        unsafe { (*self.ipv4).ttl }
    }

    #[inline(always)]
    pub(crate) fn set_destination_mac(&self, mac: &Mac) {
        // SAFETY: `read` has checked the bounds.
        unsafe { (*self.ethernet).destination = mac.0 };
    }

    /// Writes the source address, and updates the checksum of the IPv4 header.
    #[inline(always)]
    pub(crate) fn set_source(&self, new: u32) {
        self.update_checksum(self.source, new);
        // SAFETY: `read` has checked the bounds.
        unsafe { (*self.ipv4).source = new.to_ne_bytes() };
    }

    /// Writes the destination address, and updates the checksum of the IPv4 header.
    #[inline(always)]
    pub(crate) fn set_destination(&self, new: u32) {
        self.update_checksum(self.destination, new);
        // SAFETY: `read` has checked the bounds.
        unsafe { (*self.ipv4).destination = new.to_ne_bytes() };
    }

    #[inline(always)]
    fn update_checksum(&self, old: u32, new: u32) {
        // SAFETY: `read` has checked the bounds.
        let checksum = unsafe { &mut (*self.ipv4).checksum };
        *checksum = checksum_replace(u16::from_ne_bytes(*checksum), old, new).to_ne_bytes();
    }
}

/// Returns the checksum after a 32-bit word changed from `old` to `new` (RFC 1624, equation 3).
#[inline(always)]
pub(crate) fn checksum_replace(checksum: u16, old: u32, new: u32) -> u16 {
    // The sum of five 16-bit terms fits into 32 bits, so the carries are folded at the end.
    let mut sum = u32::from(!checksum);
    sum += (!old & 0xffff) + (!old >> 16);
    sum += (new & 0xffff) + (new >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);

    !(sum as u16)
}

/// Returns the kernel's representation of the packet, which the helpers take.
#[inline(always)]
pub(crate) fn skb(ctx: &TcContext) -> *mut __sk_buff {
    ctx.skb.skb
}
