//! Finds the addresses in a packet, and the checksums that cover them.

use std::ops::Range;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The position of an IPv4 packet, or of the packet that an ICMP error quotes. All offsets are from
/// the start of the outer packet.
#[derive(Debug)]
struct Layer {
    start: usize,
    payload: usize,
    end: usize,
    /// Offset of the transport checksum, if it covers the addresses and is present.
    checksum: Option<usize>,
}

/// The layers of a packet: the packet itself and, for an ICMP error, the quoted packet.
#[derive(Debug)]
pub(crate) struct Fields {
    layers: Vec<Layer>,
}

impl Fields {
    /// Finds the fields of a packet that the oracle has parsed without an error.
    pub(crate) fn of(packet: &[u8]) -> Self {
        let end = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let outer = Layer::at(packet, 0, end);
        let is_first = packet[6] & 0x1f == 0 && packet[7] == 0;
        let kind = packet.get(outer.payload).filter(|_| outer.payload < end);
        let is_error = packet[9] == ICMP
            && is_first
            && kind.is_some_and(|kind| [3, 4, 5, 11, 12].contains(kind));
        let quote = outer.payload + 8;
        let mut layers = vec![outer];
        if is_error && quote + 20 <= end {
            layers.push(Layer::at(packet, quote, end));
        }

        Self { layers }
    }

    /// Returns whether a gateway may change the byte at offset `at`.
    pub(crate) fn may_change(&self, at: usize) -> bool {
        let icmp = self.icmp();
        at == 8
            || icmp.is_some_and(|icmp| (icmp + 2..icmp + 4).contains(&at))
            || self.layers.iter().any(|layer| layer.may_change(at))
    }

    /// Returns one sum for each checksum: the sum of the bytes that the checksum covers, including
    /// the checksum itself.
    ///
    /// A rewrite that updates a checksum correctly does not change the sum.
    pub(crate) fn residues(&self, packet: &[u8]) -> Vec<u16> {
        let mut residues = Vec::new();
        for layer in &self.layers {
            residues.push(residue(&packet[layer.start..layer.payload.min(layer.end)]));
            if layer
                .checksum
                .is_some_and(|at| !is_absent(packet, layer, at))
            {
                let addresses = residue(&packet[layer.start + 12..layer.start + 20]);
                let payload = residue(&packet[layer.payload..layer.end]);
                residues.push(add(addresses, payload));
            }
        }
        if let Some(icmp) = self.icmp() {
            residues.push(residue(&packet[icmp..self.layers[0].end]));
        }

        residues
    }

    /// Returns the offset of the ICMP header, if the packet is an ICMP error.
    fn icmp(&self) -> Option<usize> {
        (self.layers.len() > 1).then(|| self.layers[0].payload)
    }
}

impl Layer {
    fn at(packet: &[u8], start: usize, end: usize) -> Self {
        let payload = start + usize::from(packet[start] & 0xf) * 4;
        let is_first = packet[start + 6] & 0x1f == 0 && packet[start + 7] == 0;
        let offset = match packet[start + 9] {
            TCP => Some(16),
            UDP | 33 | 136 => Some(6), // UDP, DCCP, UDP-Lite
            _ => None,
        };
        let checksum = offset.map(|offset| payload + offset);

        Self {
            start,
            payload,
            end,
            checksum: checksum.filter(|at| is_first && at + 2 <= end),
        }
    }

    fn may_change(&self, at: usize) -> bool {
        let changes: [Range<usize>; 2] = [10..12, 12..20];
        let checksum = self.checksum.map(|checksum| checksum..checksum + 2);

        changes
            .iter()
            .any(|range| at >= self.start && range.contains(&(at - self.start)))
            || checksum.is_some_and(|range| range.contains(&at))
    }
}

/// Returns whether the packet is a UDP datagram without a checksum. The programs do not add one.
fn is_absent(packet: &[u8], layer: &Layer, at: usize) -> bool {
    packet[layer.start + 9] == UDP && packet[at..at + 2] == [0, 0]
}

/// Returns the one's complement sum of the bytes (RFC 1071). The sum is modulo 0xffff, so that both
/// representations of zero, all zeros and all ones, have the same result.
fn residue(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()]));

    words.fold(0, add)
}

fn add(a: u16, b: u16) -> u16 {
    let sum = (u32::from(a) + u32::from(b)) % 0xffff;
    u16::try_from(sum).expect("below 0xffff")
}
