//! Access to a packet's headers, the only place with packet pointers.
//!
//! Multi-byte fields keep network order, read as a native word: comparing,
//! masking and summing need no conversion.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;
use ebpf_common::maps::Mac;

use crate::options;

/// Length of the Ethernet header.
pub(crate) const ETHERNET: usize = 14;

/// Offsets from the start of the frame.
pub(crate) const TTL: usize = ETHERNET + 8;
pub(crate) const IP_CHECKSUM: usize = ETHERNET + 10;
pub(crate) const SOURCE: usize = ETHERNET + 12;

/// Length of an IPv4 header without options.
pub(crate) const IPV4: usize = 20;

/// Offset of what follows an IPv4 header without options, from the start of the frame.
pub(crate) const HEADERS: usize = ETHERNET + IPV4;

/// End of the longest headers read directly: Ethernet, IPv4 and TCP without options.
const DIRECT: u32 = (HEADERS + 20) as u32;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const DCCP: u8 = 33;
pub(crate) const UDP_LITE: u8 = 136;

const ETHERTYPE_IPV4: u16 = 0x0800_u16.to_be();

/// More fragments, or a fragment offset.
const FRAGMENT: u16 = 0x3fff_u16.to_be();
const FRAGMENT_OFFSET: u16 = 0x1fff_u16.to_be();

/// Lowest offset of a later ICMP fragment, in units of 8 bytes: behind the ICMP header and the
/// quoted addresses.
///
/// A receiver that lets fragments overlap would take the addresses from one that starts before,
/// and these were not checked (RFC 1858, section 4).
const ICMP_FRAGMENT_OFFSET_MIN: u16 = 4;
const _: () = assert!(ICMP_FRAGMENT_OFFSET_MIN as usize * 8 >= 8 + IPV4);

/// All fields are bytes: the kernel places headers at any address, and a reference to a type
/// with a higher alignment would be undefined behaviour.
#[repr(C)]
struct Ethernet {
    destination: [u8; 6],
    source: [u8; 6],
    ethertype: [u8; 2],
}

/// As [`Ethernet`], bytes only.
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

/// The counters of one hook for frames that [`Frame::read`] refuses.
pub(crate) struct Refusals {
    pub(crate) not_ipv4: Counter,
    pub(crate) malformed: Counter,
    pub(crate) source_routed: Counter,
}

/// A frame with an IPv4 header whose lengths and options are sound.
///
/// Invariant: valid until the first helper that moves the packet's data.
pub(crate) struct Frame {
    ethernet: *mut Ethernet,
    ipv4: *mut Ipv4,
    end: usize,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) protocol: u8,
    /// Offset of what follows the IPv4 header, from the start of the frame.
    pub(crate) payload: u32,
    /// End of the IPv4 packet, from the start of the frame.
    pub(crate) packet_end: u32,
    fragment: u16,
}

impl Frame {
    /// Reads the headers, after moving them into the linear part of the packet.
    #[inline(always)]
    pub(crate) fn read(ctx: &TcContext, refusals: &Refusals) -> Result<Self, Counter> {
        let malformed = refusals.malformed;
        if ctx.data() + DIRECT as usize > ctx.data_end()
            && (ctx.len() >= DIRECT || ctx.data() + HEADERS > ctx.data_end())
            && ctx.len() > 0
        {
            // Fails only where memory is short; the checks below catch that.
            let _ = ctx.pull_data(ctx.len().min(DIRECT));
        }
        let (start, end) = (ctx.data(), ctx.data_end());
        if start + HEADERS > end {
            return Err(Self::classify_short(ctx, refusals));
        }
        let ethernet = start as *mut Ethernet;
        let ipv4 = (start + ETHERNET) as *mut Ipv4;

        // SAFETY: Both headers lie before `end`, and their types have an alignment of 1.
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
        if frame.overwrites_quote() {
            return Err(malformed);
        }
        if ihl > IPV4 as u32 {
            options::check(ctx, frame.payload, malformed, refusals.source_routed)?;
        }

        Ok(frame)
    }

    /// Returns why a frame is too short: a truncated IPv4 packet, or another protocol's.
    #[inline(always)]
    fn classify_short(ctx: &TcContext, refusals: &Refusals) -> Counter {
        match ctx.load::<u16>(ETHERNET - 2) {
            Ok(ETHERTYPE_IPV4) | Err(_) => refusals.malformed,
            Ok(_) => refusals.not_ipv4,
        }
    }

    /// Returns whether this is a later fragment that starts within the addresses an ICMP error
    /// quotes.
    #[inline(always)]
    fn overwrites_quote(&self) -> bool {
        self.protocol == ICMP
            && self.is_later_fragment()
            && u16::from_be(self.fragment & FRAGMENT_OFFSET) < ICMP_FRAGMENT_OFFSET_MIN
    }

    /// Returns whether this is a fragment other than the first, so lacks the header of its
    /// protocol.
    #[inline(always)]
    pub(crate) fn is_later_fragment(&self) -> bool {
        self.fragment & FRAGMENT_OFFSET != 0
    }

    /// Returns whether this is a whole TCP or UDP header behind an IPv4 header without options.
    ///
    /// TCP segments that open a connection are not plain: their options may change.
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
            // SAFETY: The byte lies before `end`.
            && unsafe { *((start + TCP_FLAGS) as *const u8) } & SYN == 0
    }

    /// Returns the index of the peer, in network order, that the source MAC address encodes.
    #[inline(always)]
    pub(crate) fn peer(&self, prefix: [u8; 4]) -> Option<[u8; 2]> {
        // SAFETY: `read` has checked the bounds.
        let [a, b, c, d, high, low] = unsafe { (*self.ethernet).source };
        (u32::from_ne_bytes([a, b, c, d]) == u32::from_ne_bytes(prefix)).then_some([high, low])
    }

    /// Returns the time to live.
    #[inline(always)]
    pub(crate) fn ttl(&self) -> u8 {
        // SAFETY: `read` has checked the bounds.
        unsafe { (*self.ipv4).ttl }
    }

    /// Writes the destination MAC address.
    #[inline(always)]
    pub(crate) fn set_destination_mac(&self, mac: &Mac) {
        // SAFETY: `read` has checked the bounds.
        unsafe { (*self.ethernet).destination = mac.0 };
    }

    /// Writes the source address and updates the header's checksum.
    #[inline(always)]
    pub(crate) fn set_source(&self, new: u32) {
        self.update_checksum(self.source, new);
        // SAFETY: `read` has checked the bounds.
        unsafe { (*self.ipv4).source = new.to_ne_bytes() };
    }

    /// Writes the destination address and updates the header's checksum.
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

/// Returns a header's checksum after a 32-bit change (RFC 1624, equation 3).
#[inline(always)]
pub(crate) fn checksum_replace(checksum: u16, old: u32, new: u32) -> u16 {
    // Four 16-bit terms and one carry each fit 32 bits.
    let mut sum = u32::from(!checksum);
    sum += (!old & 0xffff) + (!old >> 16);
    sum += (new & 0xffff) + (new >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);

    !(sum as u16)
}

/// Returns the kernel's own type of a packet.
#[inline(always)]
pub(crate) fn skb(ctx: &TcContext) -> *mut __sk_buff {
    ctx.skb.skb
}
