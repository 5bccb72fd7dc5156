//! Access to a packet's headers, the only place with packet pointers.
//!
//! Multi-byte fields are as they lie in memory, network order read as a native
//! word: comparing, masking and summing need no conversion.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use ebpf_common::counter::Counter;
use ebpf_common::maps::Mac;

/// Length of the Ethernet header.
pub(crate) const ETHERNET: usize = 14;

/// Offsets from the start of the frame.
pub(crate) const TTL: usize = ETHERNET + 8;
pub(crate) const IP_CHECKSUM: usize = ETHERNET + 10;
pub(crate) const SOURCE: usize = ETHERNET + 12;

/// Length of an IPv4 header without options.
pub(crate) const IPV4: usize = 20;

/// End of the longest headers read directly: Ethernet, IPv4 and TCP without options.
const DIRECT: u32 = (ETHERNET + IPV4 + 20) as u32;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const DCCP: u8 = 33;
pub(crate) const UDP_LITE: u8 = 136;

const ETHERTYPE_IPV4: u16 = 0x0800_u16.to_be();

/// More fragments, or a fragment offset.
const FRAGMENT: u16 = 0x3fff_u16.to_be();
const FRAGMENT_OFFSET: u16 = 0x1fff_u16.to_be();

/// A MAC address as three words, since nothing in a frame is aligned better.
type MacWords = [u16; 3];

#[repr(C)]
struct Ethernet {
    destination: MacWords,
    source: MacWords,
    ethertype: u16,
}

/// Aligned behind Ethernet's 14 bytes only where the kernel puts two before them.
///
/// The verifier refuses the programs where the machine needs alignment and the
/// kernel does not see to it, so no access here goes wrong.
#[repr(C)]
struct Ipv4 {
    version_ihl: u8,
    tos: u8,
    total_len: u16,
    id: u16,
    fragment: u16,
    ttl: u8,
    protocol: u8,
    checksum: u16,
    source: u32,
    destination: u32,
}

const HEADERS: usize = ETHERNET + IPV4;
const _: () = assert!(size_of::<Ethernet>() == ETHERNET && size_of::<Ipv4>() == IPV4);

/// A frame with an IPv4 header whose lengths are sound.
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
    /// Reads the headers, after bringing them into the linear part of the packet.
    #[inline(always)]
    pub(crate) fn read(
        ctx: &TcContext,
        not_ipv4: Counter,
        malformed: Counter,
    ) -> Result<Self, Counter> {
        if ctx.data() + DIRECT as usize > ctx.data_end()
            && (ctx.len() >= DIRECT || ctx.data() + HEADERS > ctx.data_end())
            && ctx.len() > 0
        {
            // Fails only where memory is short; the checks below catch that.
            let _ = ctx.pull_data(ctx.len().min(DIRECT));
        }
        let (start, end) = (ctx.data(), ctx.data_end());
        if start + HEADERS > end {
            return Err(Self::classify_short(ctx, not_ipv4, malformed));
        }
        let ethernet = start as *mut Ethernet;
        let ipv4 = (start + ETHERNET) as *mut Ipv4;

        // SAFETY: Both headers lie before `end`.
        let (ethernet_ref, ipv4_ref) = unsafe { (&*ethernet, &*ipv4) };
        if ethernet_ref.ethertype != ETHERTYPE_IPV4 {
            return Err(not_ipv4);
        }
        let ihl = u32::from(ipv4_ref.version_ihl & 0xf) * 4;
        let total_len = u32::from(u16::from_be(ipv4_ref.total_len));
        let packet_end = ETHERNET as u32 + total_len;
        if ipv4_ref.version_ihl >> 4 != 4
            || ihl < IPV4 as u32
            || total_len < ihl
            || packet_end > ctx.len()
        {
            return Err(malformed);
        }

        Ok(Self {
            ethernet,
            ipv4,
            end,
            source: ipv4_ref.source,
            destination: ipv4_ref.destination,
            protocol: ipv4_ref.protocol,
            payload: ETHERNET as u32 + ihl,
            packet_end,
            fragment: ipv4_ref.fragment,
        })
    }

    /// Tells a truncated IPv4 packet from a short frame of something else.
    #[inline(always)]
    fn classify_short(ctx: &TcContext, not_ipv4: Counter, malformed: Counter) -> Counter {
        match ctx.load::<u16>(ETHERNET - 2) {
            Ok(ETHERTYPE_IPV4) | Err(_) => malformed,
            Ok(_) => not_ipv4,
        }
    }

    /// Tells whether this is no first piece of a datagram, so lacks the header of its protocol.
    #[inline(always)]
    pub(crate) fn is_later_fragment(&self) -> bool {
        self.fragment & FRAGMENT_OFFSET != 0
    }

    /// Tells whether only IPv4's plain header stands before a whole TCP or UDP header.
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

    /// Returns the peer that the frame's source MAC address names, if it names one.
    #[inline(always)]
    pub(crate) fn peer(&self, prefix: [u16; 2]) -> Option<[u8; 2]> {
        // SAFETY: `read` has checked the bounds.
        let [high, low, peer] = unsafe { (*self.ethernet).source };
        ([high, low] == prefix).then_some(peer.to_ne_bytes())
    }

    /// Returns how many hops the packet may still take.
    #[inline(always)]
    pub(crate) fn ttl(&self) -> u8 {
        // SAFETY: `read` has checked the bounds.
        unsafe { (*self.ipv4).ttl }
    }

    /// Writes the destination MAC address.
    #[inline(always)]
    pub(crate) fn set_destination_mac(&self, mac: &Mac) {
        let mac: *const Mac = mac;
        // SAFETY: A `Mac` is as long and as aligned as its words.
        let words = unsafe { mac.cast::<MacWords>().read() };
        // SAFETY: `read` has checked the bounds.
        unsafe { (*self.ethernet).destination = words };
    }

    /// Writes the source address and mends the header's checksum.
    #[inline(always)]
    pub(crate) fn set_source(&self, new: u32) {
        // SAFETY: `read` has checked the bounds.
        unsafe {
            (*self.ipv4).checksum = checksum_replace((*self.ipv4).checksum, self.source, new);
            (*self.ipv4).source = new;
        }
    }

    /// Writes the destination address and mends the header's checksum.
    #[inline(always)]
    pub(crate) fn set_destination(&self, new: u32) {
        // SAFETY: `read` has checked the bounds.
        unsafe {
            (*self.ipv4).checksum = checksum_replace((*self.ipv4).checksum, self.destination, new);
            (*self.ipv4).destination = new;
        }
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
