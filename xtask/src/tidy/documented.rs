//! Checks that the table in `docs/settings.md` has the same numbers as the code.

use ebpf_common::settings as code;
use std::net::Ipv4Addr;

/// The path of the document, relative to the checkout.
pub(super) const PAGE: &str = "docs/settings.md";

/// Returns a problem for each row that is missing in the document or has another number.
pub(super) fn missing(page: &str) -> Vec<String> {
    rows()
        .into_iter()
        .filter(|row| !page.lines().any(|line| line == row))
        .map(|row| format!("{PAGE} lacks the line `{row}`"))
        .collect()
}

fn rows() -> Vec<String> {
    let [a, b, c, d] = code::PEER_MAC_PREFIX;
    let peer_mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}, then the peer's index (16 bits)");
    let rows = [
        (
            "UDP port of the overlay (VXLAN)",
            code::OVERLAY_PORT.to_string(),
        ),
        (
            "VXLAN network identifier",
            format!("{:#x}", code::OVERLAY_VNI),
        ),
        ("MAC of the nodes' overlay device", mac(code::NODE_MAC)),
        (
            "MAC of the gateways' overlay device",
            mac(code::GATEWAY_MAC),
        ),
        ("MAC of a peer on the TAP", peer_mac),
        (
            "network of the overlay's probe, one address per replica",
            network(code::PROBE_NET, code::PROBE_NET_LEN),
        ),
        (
            "UDP port of the overlay's probe",
            code::PROBE_PORT.to_string(),
        ),
        (
            "UDP port of the checks from node to node, the same in all clusters",
            code::ECHO_RESPONDER_PORT.to_string(),
        ),
        (
            "network of the tunnel's probe (upstream's)",
            network(code::LIVENESS_NET, code::LIVENESS_NET_LEN),
        ),
        (
            "UDP port of the tunnel's probe (upstream's)",
            code::LIVENESS_PORT.to_string(),
        ),
        ("routing table", code::ROUTE_TABLE.to_string()),
        (
            "priority of the routing rules",
            code::RULE_PRIORITY.to_string(),
        ),
        ("nexthop ids from", format!("{:#x}", code::NEXTHOP_BASE)),
        ("routing protocol number", code::ROUTE_PROTOCOL.to_string()),
        ("nft table", format!("inet {}", code::NFT_TABLE)),
        ("overlay device", code::OVERLAY_DEVICE.to_owned()),
        ("TAP device", code::TAP_DEVICE.to_owned()),
    ];

    rows.into_iter()
        .map(|(what, value)| format!("| {what} | {value} |"))
        .collect()
}

fn mac([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn network(address: Ipv4Addr, length: u8) -> String {
    format!("{address}/{length}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_page_has_every_number_of_the_code() {
        let page = std::fs::read_to_string(workspace::root().join(PAGE)).unwrap();

        assert_eq!(missing(&page), Vec::<String>::new());
    }

    #[test]
    fn a_differing_number_is_reported() {
        let rows = rows().join("\n").replace("6091", "6081");

        let missing = missing(&rows);

        assert_eq!(
            missing,
            ["docs/settings.md lacks the line `| UDP port of the overlay (VXLAN) | 6091 |`"]
        );
    }
}
